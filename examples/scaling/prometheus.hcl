# The same by an instant query, for figures that a Prometheus has anyway. While it is away for three evaluations, the
# policy proposes four slots.

job "prometheus" {
  role "worker" {
    command = ["python3", "../mnist-local/train.py", "--steps=20000"]
    resources {
      cpu = 0.1
    }
    scaling {
      min            = 2
      max            = 8
      on_check_error = "ignore"
      fallback {
        failures = 3
        replicas = 4
      }
      evaluation_interval = "5s"

      cooldown {
        up   = "20s"
        down = "20s"
      }
      stabilization_window {
        up   = "5s"
        down = "10s"
      }
      policy "gpu-idle" {
        source "prometheus" {
          address = "http://localhost:9090"
          query   = "avg(DCGM_FI_DEV_GPU_UTIL{job=\"mnist\"})"
          window  = "10m"
          offset  = "1m"
        }
        strategy "threshold" {
          below  = 30
          delta  = -2
          within = 5
        }
      }
    }
  }
  checkpoint {
    dir    = "ckpt/prometheus"
    signal = "SIGUSR1"
  }
}
