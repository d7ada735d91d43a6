# Makes room as soon as other jobs of this directory wait for slots, before they have to take any.

job "generous" {
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
      policy "others-wait" {
        source "queue" {
          metric = "slots"
        }
        strategy "threshold" {
          above  = 0
          delta  = -2
          within = 2
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/generous"
    signal = "SIGUSR1"
  }
}
