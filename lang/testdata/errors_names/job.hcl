eltrain {
  requird_version = ">= 0.1"
}

variabel "x" {}

variable "image" {
  type = string
}

locals {
  steps = 10
  a     = local.stepz
}

provider "kubernets" {}

provider "local" {
  nod "n1" { cpu = 1 }
  node "n2" { cpus = 1 }
  node "n3" { cpu = 1 }
  node "n3" { cpu = 2 }
}

job "a" {
  provider = "locl"
  role "worker" {
    comand   = ["x"]
    replicas = var.replica
    image    = var.imag
    env = {
      A = upperr("x")
      B = timestamp()
      C = steps
      D = role.workr.replicas
      E = role.worker.replica
      F = slot.indx
      G = local.steps.foo
    }
    stop_grace = "${slot.index}s"
    depends_on = [role.wrker, "worker"]
    scalling {
      min = 1
      max = 2
    }
  }
  role "worker" {
    command = ["x"]
  }
  dynamic "rol" {
    for_each = [1]
    content {}
  }
  dynamic "role" {
    for_each = toset(["p", "q"])
    iterator = it
    labels   = [it.value]
    content {
      command  = [itt.value]
      replicas = role.p.replicas
    }
  }
  dynamic "role" {
    for_each = range(role.worker.replicas)
    labels   = ["n${role.value}"]
    content {
      command = ["x"]
    }
  }
}

job "a" {
  role "-x" {
    command = ["true"]
  }
}
