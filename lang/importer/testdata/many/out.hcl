provider "kubernetes" {
  namespace = "a"
}

# Imported: Job 9 lives of the namespace a.
job "9-lives" {
  provider = "kubernetes"

  # The container c is named main here.
  role "worker" {
    replicas = 2
    image    = "registry.example/c:1"
    command  = ["ENTRYPOINT-OF-THE-IMAGE", "--fast"]
    env = {
      JOB_COMPLETION_INDEX = slot.index
    }
  }
}

# Imported: Job 9 lives of the namespace b.
job "9-lives-2" {
  provider = "kubernetes"

  # The container c is named main here.
  role "worker" {
    replicas = 2
    image    = "registry.example/c:2"
    command  = ["accelerate", "launch", "train.py", "$${HOME}", "%%{if}"]
    env = {
      QUOTE = "a\"b $${x} %%{y}\n"
    }
  }
}
