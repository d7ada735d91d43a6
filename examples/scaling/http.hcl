# One slot for every hundred messages that wait, by a number in a JSON document.

variable "token" {
  type      = string
  default   = "none"
  sensitive = true
}

job "backlog" {
  role "worker" {
    command = ["python3", "../mnist-local/train.py", "--steps=20000"]
    resources {
      cpu = 0.1
    }
    scaling {
      min                 = 2
      max                 = 8
      evaluation_interval = "5s"

      cooldown {
        up   = "20s"
        down = "20s"
      }
      stabilization_window {
        up   = "5s"
        down = "10s"
      }
      policy "backlog" {
        source "http" {
          address = "http://localhost:8080/stats"
          field   = "queue.messages"
          headers = {
            Authorization = "Bearer ${var.token}"
          }
        }
        strategy "target-value" {
          target = 100
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/backlog"
    signal = "SIGUSR1"
  }
}
