eltrain {
  required_version = ">= 9.0"
  state "fil" {}
  service {
    tls_cert = "cert.pem"
  }
}

job "norole" {}

job "scaling" {
  role "a" {
    command = ["x"]
    scaling {
      min = 4
      max = 2
    }
  }
  role "b" {
    command = []
    scaling {
      min  = 0
      max  = 2
      step = 0
    }
  }
  role "c" {
    command  = ["x"]
    replicas = 3
    scaling {
      min   = 2
      max   = 8
      step  = 2
      sizes = [2, 4]
    }
  }
  role "d" {
    command = ["x"]
    scaling {
      min   = 2
      max   = 8
      sizes = [2, 16]
    }
  }
  role "e" {
    command = ["x"]
    scaling {
      min  = 3
      max  = 3
      step = 2
    }
  }
  role "f" {
    command  = ["x"]
    replicas = 9
    env      = { RANK = "9", MASTER_ADDR = "x", ELTRAIN_SLOT = slot.index, OMP_NUM_THREADS = "2" }
    scaling {
      min = 2
      max = 8
    }
  }
  role "g" {
    command  = ["x"]
    replicas = 3
    scaling {
      min  = 2
      max  = 8
      step = 2
    }
  }
  role "h" {
    command   = [""]
    replicas  = 0
    processes = 0
    env       = { "A=B" = "c" }
  }
}

job "policies" {
  role "w" {
    command  = ["x"]
    replicas = 4
    resources {
      cpu     = 4
      memory  = "4GiB"
      devices = { "nvidia.com/gpu" = 1 }
    }
  }
  limits {
    cpu     = 8
    devices = { "nvidia.com/gpu" = 2 }
  }
  progress { pattern = "step (\\d+)" }
  checkpoint {
    signal  = "USR1"
    pattern = "saved step (\\d+)"
  }
  rendezvous { settle = "20m" }
  topology { rank_by = ["rack", "node.labels.x", "node.labels.x"] }
  detect {
    lease = "100ms"
    check {
      when    = "allways"
      timeout = "1s"
      command = [""]
    }
  }
  heal {
    budget {
      restarts = -1
      window   = "0s"
    }
    on "omo" {
      memory = "x1.5"
      limit  = 0
    }
    on "hang" {
      action  = "reload"
      memory  = "x1.5"
      limit   = 0
      window  = "10ms"
      backoff = "2h"
    }
    on "nan_loss" { action = "relode" }
    on "network" { backoff = "2h" }
    on "oom" { window = "1h" }
    on "pending_timeout" { limit = 2 }
    on "evicted" { after = "1h" }
    on "no_progress" { after = "0s" }
    on "pending_timeout" { after = "10ms" }
  }
}

job "pattern" {
  role "w" { command = ["x"] }
  progress { pattern = "step (?P<step>" }
  checkpoint { pattern = "saved (?P<step>" }
}

job "order" {
  role "a" {
    command    = ["x"]
    depends_on = [role.b]
  }
  role "b" {
    command    = ["x"]
    depends_on = [role.c]
  }
  role "c" {
    command    = ["x"]
    depends_on = [role.a]
  }
  role "self" {
    command    = ["x"]
    depends_on = [role.self]
  }
}

job "updates" {
  role "ranked" {
    command = ["x"]
    update { max_unavailable = 1 }
  }
  role "none" {
    command = ["x"]
    ranked  = false
    update { max_unavailable = 0 }
  }
}

job "reads_nothing" {
  role "w" { command = ["x"] }
  progress {}
}

job "reads_twice" {
  role "w" { command = ["x"] }
  progress {
    pattern     = "step (?P<step>\\d+)"
    recognizers = "[]"
  }
}

job "no_json" {
  role "w" { command = ["x"] }
  progress { recognizers = "[\n{" }
}

job "misread" {
  role "w" { command = ["x"] }
  progress {
    recognizers = jsonencode([{ name = "mine", patterns = ["at (?P<step>\\d+)"], samples = [{ lines = ["at 7"], reading = { step = 8 } }] }])
  }
}

job "no_signatures" {
  role "w" { command = ["x"] }
  heal { signatures = "[\n{" }
}

job "unsigned" {
  role "w" { command = ["x"] }
  heal {
    signatures = jsonencode([{ name = "mine", cause = "network", patterns = ["fabric: down"], samples = [{ lines = ["fabric: away"] }] }])
  }
}

job "limits_nothing" {
  role "worker" { command = ["a"] }
  heal {
    on "nan_loss" { limit = 2 }
  }
}

job "groups" {
  role "w" {
    command   = ["x"]
    replicas  = 3
    processes = 4
  }
  topology {
    group "tp" { size = 0 }
    group "dp" {}
    group "rest" {}
  }
}

job "data" {
  role "w" { command = ["x"] }
  topology {
    group "data" { size = 2 }
  }
}

job "indivisible" {
  role "w" {
    command   = ["x"]
    processes = 4
    replicas  = 4
    scaling {
      min = 2
      max = 8
    }
  }
  role "ps" {
    command = ["x"]
    ranked  = false
  }
  topology {
    group "tensor" { size = 4 }
    group "pipeline" { size = 2 }
  }
}

job "no_figures" {
  role "none" {
    command = ["x"]
    accelerators {}
  }
  role "both" {
    command = ["x"]
    accelerators {
      command = ["y"]
      dcgm    = "http://localhost:9400/metrics"
    }
  }
  role "empty" {
    command = ["x"]
    accelerators { command = [] }
  }
  role "file" {
    command = ["x"]
    accelerators { dcgm = "localhost:9400" }
  }
}

job "indivisible_as_it_is" {
  role "worker" {
    command  = ["x"]
    replicas = 3
  }
  topology {
    group "tensor" { size = 2 }
  }
}
