# Four nodes in two racks. All are this machine: each node is the declared part of it.

provider "local" {
  node "n1" {
    cpu    = 1
    memory = "512MiB"
    labels = { rack = "r1", switch = "s1" }
  }
  node "n2" {
    cpu    = 1
    memory = "512MiB"
    labels = { rack = "r1", switch = "s1" }
  }
  node "n3" {
    cpu    = 1
    memory = "512MiB"
    labels = { rack = "r2", switch = "s2" }
  }
  node "n4" {
    cpu    = 1
    memory = "512MiB"
    labels = { rack = "r2", switch = "s2" }
  }
}
