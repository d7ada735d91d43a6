variable "secret" {
  sensitive = true
  default   = "hunter2"
}
variable "size" {
  default = 3
}

job "list" {
  for_each = ["a"]
  role "w" { command = ["x", each.key, each.vlaue] }
}
job "bad-key" {
  for_each = { "a b" = 1 }
  role "w" { command = ["x"] }
}
job "secret" {
  for_each = toset([var.secret])
  role "w" { command = ["x"] }
}
job "a" {
  for_each = toset(["b"])
  role "w" { command = ["x"] }
}
job "a-b" {
  role "w" { command = ["x", each.key] }
}
job "none" {
  for_each = {}
  role "w" { command = ["x", each.value, var.sise] }
  role "v" { comand = ["x"] }
}
job "long" {
  for_each = toset(["abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789"])
  role "w" { command = ["x"] }
}
job "unknown" {
  for_each = job.a
  role "w" { command = ["x"] }
}

job "guarded" {
  role "worker" {
    command = ["x"]
    env     = { TOKEN = var.secret }
  }
  lifecycle {
    prevent_destroy       = "perhaps"
    create_before_destroy = true
    ignore_changes        = [priorty, role.wroker.replicas, role.worker.replcas, role.worker, "priority", role.worker.command[0], lifecycle, role.worker.env["A"].b]

    precondition {
      condition     = var.size % 2 == 0
      error_message = "size must be even, got ${var.size}."
    }
    precondition {
      condition     = self.priority == 0
      error_message = "No."
    }
    postcondition {
      condition     = self.rol.worker.replicas == 1
      error_message = "No."
    }
  }
}
job "kept" {
  role "worker" {
    command = ["x"]
    env     = { TOKEN = var.secret }
  }
  lifecycle {
    ignore_changes = [role.wroker.env]
  }
}
job "strict" {
  role "worker" {
    command = ["x"]
    env     = { TOKEN = "bearer ${var.secret}" }
  }
  lifecycle {
    ignore_changes = role.worker
    precondition {
      condition = true
    }
  }
}
job "checked" {
  role "worker" {
    command = ["x"]
    env     = { TOKEN = "bearer ${var.secret}" }
  }
  lifecycle {
    postcondition {
      condition     = self.role.worker.replicas > 1 && self.checkpoint != null
      error_message = "Only ${self.role.worker.replicas} of ${self.name}."
    }
    postcondition {
      condition     = self.role.worker.env.TOKEN == ""
      error_message = "The token is ${self.role.worker.env.TOKEN}."
    }
    postcondition {
      condition     = [self.name]
      error_message = "No."
    }
  }
}

output "token" {
  value = job.checked.role.worker.env
}
output "typo" {
  value = job.cheked.priority
}
output "argument" {
  value       = job.checked.role.worker.replcas
  description = var.size
}
output "typo" {
  value = 1
}

check "soft" {
  assert {
    condition     = job.checked.role.worker.replicas > 1
    error_message = "Only ${job.checked.role.worker.replicas}."
  }
  assert {
    condition     = job.checked.checkpoint.dir == "x"
    error_message = "Elsewhere."
  }
  assert {
    condition     = job.checked.checkpiont.dir == "x"
    error_message = "Elsewhere."
  }
}
check "void" {}

moved {
  from = job.kept
  to   = job.strict
}
moved {
  from = job.one
  to   = job.checked
}
moved {
  from = job.two
  to   = job.checked
}
moved {
  from = job.one
  to   = job.kept
}
moved {
  from = job.x
  to   = job.y
}
moved {
  from = job.y
  to   = job.x
}
moved {
  from = job.same
  to   = job.same
}
moved {
  from = job.gone
  to   = module.base
}
moved {
  from = job.gone.worker
  to   = job.kept
}
moved {
  from = "job.gone"
  to   = gone
}

removed {
  from = job.kept
}
removed {
  from = job.one
}
removed {
  from    = job.past
  destroy = true
  lifecycle {
    destroy = false
  }
}
removed {
  from = job.past
}
removed {
  from = module
}
removed {
  from = module.gone.output
}
removed {
  from = "module.gone"
}
removed {
  lifecycle {}
}

import {
  to = job.keptt
  id = "x"
}
import {
  to = job.kept.wroker[0]
  id = "x"
}
import {
  to = job.kept.worker[1]
  id = "x"
}
import {
  to = job.kept.worker[0-1]
  id = "x"
}
import {
  to = job.kept.worker
  id = "x"
}
import {
  to = job.kept.worker[0]
  id = var.secret
}
import {
  to = job.strict.worker[0]
  id = ""
}
import {
  to = job.kept
  id = "pod"
}
import {
  to = job.kept
  id = "pod-2"
}
import {
  to = job.strict
  id = "pod"
}
import {
  to = job.strict[each.key]
  id = "pod"
}
