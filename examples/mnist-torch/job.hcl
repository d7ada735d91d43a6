# The job of ../mnist-local with PyTorch (gloo, CPU): two ranks, and room for four. Importing torch
# takes a second of CPU and about 250 MB in each rank, so the nodes are larger.

eltrain {
  required_version = ">= 0.1"
}

variable "python" {
  type        = string
  default     = "/usr/bin/python3"
  description = "A Python that has PyTorch 1.13 or later. Debian's python3-torch belongs to this one."
}

variable "replicas" {
  type    = number
  default = 2
  validation {
    condition     = var.replicas >= 2 && var.replicas <= 4
    error_message = "There are nodes for 2 to 4 ranks."
  }
}

variable "steps" {
  type    = number
  default = 2000
}

provider "local" {
  node "n1" {
    cpu    = 1
    memory = "2GiB"
    labels = { rack = "r1", switch = "s1" }
  }
  node "n2" {
    cpu    = 1
    memory = "2GiB"
    labels = { rack = "r1", switch = "s1" }
  }
  node "n3" {
    cpu    = 1
    memory = "2GiB"
    labels = { rack = "r2", switch = "s2" }
  }
  node "n4" {
    cpu    = 1
    memory = "2GiB"
    labels = { rack = "r2", switch = "s2" }
  }
}

job "mnist-torch" {
  provider = "local"

  role "worker" {
    replicas   = var.replicas
    command    = [var.python, "train.py", "--steps=${var.steps}"]
    stop_grace = "5s"

    scaling {
      min = 2
      max = 4
    }
    resources {
      cpu    = 1
      memory = "1GiB"
    }
  }

  progress {
    pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
  }
  checkpoint {
    dir     = "ckpt"
    signal  = "SIGUSR1"
    pattern = "saved step (?P<step>\\d+)"
  }
  rendezvous {
    settle  = "2s" # ranks that import torch at the same time come apart
    timeout = "2m"
  }
  topology {
    rank_by = ["node.labels.rack", "node.labels.switch"]
  }
  detect {
    lease = "5s"
  }
  heal {
    budget {
      restarts = 10
      window   = "1h"
    }
  }
}
