# The smallest size that trains 40 steps a second. The value is what the ranks print; `why` shows what was measured at which size.

job "throughput" {
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
      policy "steps" {
        source "training" {
          metric = "steps_per_second"
        }
        strategy "target-value" {
          target = 40
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/throughput"
    signal = "SIGUSR1"
  }
}
