# Grows as far as the slots are worth it: each must yield 70 % of what it yields at the smallest size that was measured,
# and the restart must pay for itself within half an hour. Sizes of which nothing is known are tried, at most two.

job "worth-it" {
  role "worker" {
    command = ["python3", "../mnist-local/train.py", "--steps=20000"]
    resources {
      cpu = 0.1
    }
    scaling {
      min                 = 2
      max                 = 8
      step                = 2
      batch               = "global" # the slots share a batch of a fixed size
      explore             = 2
      evaluation_interval = "5s"

      cooldown {
        up   = "20s"
        down = "20s"
      }
      stabilization_window {
        up   = "5s"
        down = "10s"
      }
      policy "worth-it" {
        strategy "efficiency" {
          min_efficiency = 0.7
          payback        = "30m"
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/worth-it"
    signal = "SIGUSR1"
  }
}
