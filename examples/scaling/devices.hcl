# Gives slots back while their accelerators idle. The command prints the figures; with NVIDIA devices it is eltrain-nvml.

job "devices" {
  role "worker" {
    command = ["python3", "../mnist-local/train.py", "--steps=20000"]
    resources {
      cpu = 0.1
    }
    accelerators {
      command = ["sh", "-c", "while sleep 1; do echo '{\"device\": 0, \"utilization\": 0.12}'; done"]
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
      policy "idle" {
        source "training" {
          metric = "accelerator_utilization"
          ranks  = "mean"
          window = "30s"
        }
        strategy "threshold" {
          below  = 0.3
          delta  = -2
          within = 3
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/devices"
    signal = "SIGUSR1"
  }
}
