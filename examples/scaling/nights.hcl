# Eight slots at night and on weekends, two otherwise: while no schedule is active, the fixed value counts.

job "nights" {
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
      policy "days" {
        strategy "fixed-value" {
          replicas = 2
        }
      }
      policy "nights" {
        schedule {
          start    = "0 20 * * 1-5"
          duration = "11h"
          timezone = "Europe/Berlin"
        }
        strategy "fixed-value" {
          replicas = 8
        }
      }
      policy "weekends" {
        schedule {
          start    = "0 20 * * 5"
          duration = "59h"
          timezone = "Europe/Berlin"
        }
        strategy "fixed-value" {
          replicas = 8
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/nights"
    signal = "SIGUSR1"
  }
}
