job "gpt" {
  deadline = "tomorrow"
  stop_when {
    metric = "los"
    for    = "200 step"
    as     = "done"
  }

  role "pace" {
    command = ["x"]
    scaling {
      min                 = 2
      max                 = 8
      evaluation_interval = "10ms"
      tolerance           = 1
      max_scale_up        = 0
      explore             = -1
      batch               = "local"
      on_check_error      = "holds"
      fallback {
        failures = 0
        replicas = 9
      }
    }
  }

  role "windows" {
    command = ["x"]
    scaling {
      min                 = 2
      max                 = 8
      evaluation_interval = "1s"
      stabilization_window {
        down = "1h"
      }
      policy "none" {}
    }
  }

  role "policies" {
    command = ["x"]
    scaling {
      min = 2
      max = 8
      policy "deadline" {
        strategy "fixed-value" {
          replicas = 9
        }
      }
      policy "twice" {
        source "promtheus" {}
        strategy "target" {}
      }
      policy "twice" {
        source "prometheus" {
          address = "prometheus:9090"
          metric  = "x"
        }
        strategy "target-value" {
          target = 0
        }
      }
      policy "unsourced" {
        strategy "pass-through" {}
      }
      policy "sourced" {
        source "training" {
          metric = "tokens"
          ranks  = "avg"
        }
        strategy "efficiency" {
          min_efficiency = 2
          target         = 3
        }
      }
      policy "never" {
        source "exec" {
          command = [""]
          timeout = "1ms"
        }
        strategy "threshold" {
          above  = 3
          below  = 2
          delta  = 0
          within = 1000
        }
      }
      policy "price" {
        source "capacity" {
          metric = "price"
        }
        strategy "threshold" {}
      }
      policy "cron" {
        schedule {
          start    = "0 20 * *"
          duration = "1s"
        }
        strategy "fixed-value" {
          replicas = 4
        }
      }
      policy "feb30" {
        schedule {
          start    = "0 0 30 2 *"
          duration = "1h"
        }
        strategy "fixed-value" {
          replicas = 4
        }
      }
      policy "mars" {
        schedule {
          start    = "0 0 * * *"
          duration = "1h"
          timezone = "Mars/Olympus"
        }
        strategy "fixed-value" {
          replicas = 4
        }
      }
    }
  }
}
