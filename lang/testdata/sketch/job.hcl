eltrain {
  required_version = ">= 0.1"
  state "file" { path = "eltrain.state" }
  service { listen = "127.0.0.1:0" }
}

variable "image" {
  type    = string
  default = "registry.example/train:1"
  validation {
    condition     = length(var.image) > 0
    error_message = "An image is needed."
  }
}
locals { steps = 2000 }

provider "local" {
  node "n1" {
    cpu     = 2
    memory  = "4GiB"
    devices = { "example.com/gpu" = 2 }
    labels  = { rack = "r1", switch = "s1" }
  }
}
provider "kubernetes" {
  context   = "prod"
  namespace = "ml"
}

job "mnist" {
  provider = "local"
  priority = 0
  limits {
    cpu     = 16
    memory  = "64GiB"
    devices = { "nvidia.com/gpu" = 16 }
  }

  role "worker" {
    replicas = 4
    scaling {
      min  = 2
      max  = 8
      step = 2
    }
    processes   = 1
    ranked      = true
    image       = var.image
    command     = ["python3", "train.py", "--steps=${local.steps}", "--shard=${slot.index}"]
    working_dir = "."
    env         = { NCCL_DEBUG = "WARN" }
    depends_on  = [role.ps]
    stop_grace  = "30s"
    resources {
      cpu     = 1
      memory  = "1GiB"
      devices = { "nvidia.com/gpu" = 1 }
      shm     = "2GiB"
    }
    pod = yamldecode(file("pod.yaml"))
  }
  role "ps" {
    replicas = ceil(role.worker.replicas / 4)
    command  = ["python3", "ps.py"]
    ranked   = false
  }

  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)" }
  checkpoint {
    dir    = "ckpt"
    signal = "SIGUSR1"
  }
  rendezvous {
    settle  = "5s"
    timeout = "10m"
  }
  topology { rank_by = ["node.labels.rack", "node.labels.switch"] }
  detect { lease = "15s" }
  heal {
    budget {
      restarts = 10
      window   = "24h"
    }
    exit_codes = { 3 = "fail", 75 = "retry" }
    on "oom" {
      memory = "x1.5"
      limit  = 3
    }
  }
}
