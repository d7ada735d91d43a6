# Two to four ranks on this machine, as if it were the cluster that nodes.hcl declares. Try, while
# `eltrain apply -watch` runs: kill a python3, kill an agent, remove a node from nodes.hcl.

eltrain {
  required_version = ">= 0.1"
}

variable "python" {
  type        = string
  default     = "python3"
  description = "Python 3.9 or later; the script needs nothing else."
}

variable "replicas" {
  type    = number
  default = 4
  validation {
    condition     = var.replicas >= 2 && var.replicas <= 4
    error_message = "There are nodes for 2 to 4 ranks."
  }
}

variable "steps" {
  type    = number
  default = 20000 # some seven minutes
}

job "mnist" {
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
      memory = "256MiB"
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
    settle  = "1s" # one machine: all ranks are there at once
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
