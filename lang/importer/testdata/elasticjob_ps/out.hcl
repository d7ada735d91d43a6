provider "kubernetes" {
}

# Imported: ElasticJob deepctr.
job "deepctr" {
  provider = "kubernetes"

  role "ps" {
    ranked  = false
    image   = "registry.example/deepctr:1"
    command = ["python", "-m", "trainer.train", "--steps=1000"]
    env = {
      LOG_LEVEL = "info"
    }
    resources {
      cpu    = 0.5
      memory = "2GiB"
    }
  }

  role "chief" {
    image   = "registry.example/deepctr:1"
    command = ["python", "-m", "trainer.train", "--steps=1000"]
    env = {
      LOG_LEVEL = "info"
    }
    resources {
      cpu    = 0.5
      memory = "2GiB"
    }
  }

  role "worker" {
    replicas = 2
    image    = "registry.example/deepctr:1"
    command  = ["python", "-m", "trainer.train", "--steps=1000"]
    env = {
      LOG_LEVEL = "info"
    }
    pod = {
      metadata = {
        labels = {
          team = "ads"
        }
      }
    }
    resources {
      cpu    = 0.5
      memory = "2GiB"
    }
  }
}
