provider "volcano" {
  queue = "research"
}

# Imported: Job bert.
job "bert" {
  provider = "volcano"

  # The container master is named main here.
  role "master" {
    image   = "registry.example/bert:1"
    command = ["python3", "bert.py"]
    env = {
      VC_TASK_INDEX = slot.index
      VK_TASK_INDEX = slot.index
    }
    pod = {
      spec = {
        containers = [{
          name = "main"
          ports = [{
            containerPort = 23456
            name          = "pytorchjob-port"
          }]
        }]
        priorityClassName = "batch-high"
      }
    }
  }

  # The container worker is named main here.
  role "worker" {
    replicas    = 3
    processes   = 2
    image       = "registry.example/bert:1"
    command     = ["sh", "-c", "cd bert && export OMP_NUM_THREADS=4 && exec python3 bert.py --shard $VC_TASK_INDEX"]
    working_dir = "/home"
    env = {
      VC_TASK_INDEX = slot.index
      VK_TASK_INDEX = slot.index
    }
    depends_on = [role.master]
    pod = {
      spec = {
        priorityClassName = "batch-high"
      }
    }
  }

  heal {
    budget {
      restarts = 5
    }
  }
}

# Imported: Job elastic.
job "elastic" {
  provider = "volcano"

  role "worker" {
    replicas    = 8
    processes   = 2
    image       = "registry.example/elastic:1"
    command     = ["python3", "-m", "pkg.train", "--lr=0.1"]
    working_dir = "/src"
    env = {
      OMP_NUM_THREADS = "4"
    }
    scaling {
      min = 2
      max = 8
    }
  }
}
