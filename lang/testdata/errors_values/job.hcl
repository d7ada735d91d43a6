locals {
  one   = local.two
  two   = local.three
  three = "${local.one}!"
}

variable "n" {
  type    = number
  default = "four"
}

variable "required" {}

job "a" {
  limits {
    cpu    = -1
    memory = "4G"
  }
  role "a" {
    command  = ["x"]
    replicas = role.b.replicas + 1
  }
  role "b" {
    command  = ["x"]
    replicas = role.c.scaling.min
  }
  role "c" {
    command = ["x"]
    scaling {
      min = role.a.replicas
      max = 4
    }
  }
  role "d" {
    command    = "x"
    replicas   = 1.5
    processes  = "two"
    ranked     = "maybe"
    stop_grace = "30"
    env        = { A = null, B = ["x"] }
    resources {
      cpu     = "500m"
      memory  = 4
      devices = { "nvidia.com/gpu" = 0.5 }
    }
    pod = "x"
  }
  role "e" {
    image = "x"
  }
  role "f" {
    command = ["x", role.g.command[1]]
    image   = null
  }
  role "g" {
    command = ["x", slot.index]
    scaling {
      min = 1
      max = 2
    }
    scaling {
      min = 1
      max = 2
    }
  }
  role "h" {
    command    = ["x"]
    replicas   = 1e30
    stop_grace = "999999999h"
    resources {
      cpu    = 1e20
      memory = "99999999999PiB"
    }
  }
  heal {
    exit_codes = { 0 = "fail", 7 = "restart", x = "retry" }
    on "oom" {
      memory = "1.5"
    }
  }
}
