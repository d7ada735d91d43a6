# Grows on cheap nodes: while one with room costs less than 0.8 an hour, by a label that the node has.

job "spot" {
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
      policy "cheap" {
        source "capacity" {
          metric = "price"
          label  = "node.labels.price"
        }
        strategy "threshold" {
          below  = 0.8
          delta  = 2
          within = 3
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/spot"
    signal = "SIGUSR1"
  }
}
