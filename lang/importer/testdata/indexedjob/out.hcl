provider "kubernetes" {
}

# Imported: Job torch-indexed.
job "torch-indexed" {
  provider = "kubernetes"

  # The container torch is named main here.
  role "worker" {
    replicas = 4
    image    = "registry.example/torch:2.5"
    command  = ["python3", "train.py"]
    env = {
      JOB_COMPLETION_INDEX = slot.index
    }
    pod = {
      metadata = {
        labels = {
          app = "torch"
        }
      }
      spec = {
        containers = [{
          name                   = "main"
          terminationMessagePath = "/dev/termination-log"
        }]
        schedulerName = "default-scheduler"
      }
    }
  }

  heal {
    budget {
      restarts = 6
    }
  }
}
