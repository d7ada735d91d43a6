# As many slots as the number in the file `wanted`: echo 6 >wanted. A command may as well ask a queue or a budget.

job "command" {
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
      policy "wanted" {
        source "exec" {
          command = ["cat", "wanted"]
        }
        strategy "pass-through" {}
      }
    }
  }
  checkpoint {
    dir    = "ckpt/command"
    signal = "SIGUSR1"
  }
}
