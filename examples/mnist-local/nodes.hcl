# Four nodes in two racks. All are this machine: a node is so much of it as is declared here.

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
