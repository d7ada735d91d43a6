variable "token" {
  sensitive = true
  default   = "hunter2"
}

locals {
  sizes = { small = 2, large = 8 }
  # What a module gives is used by others, whatever the order in the files.
  command = concat(["python3"], module.base.entry)
}

module "base" {
  source = "./base"
  entry  = ["train.py"]
  token  = var.token
}

module "region" {
  source   = "./base"
  for_each = toset(["eu", "us"])
  entry    = ["${each.key}.py", each.value]
}

job "sweep" {
  for_each = local.sizes
  priority = each.value

  role "worker" {
    replicas = each.value
    command  = concat(local.command, ["--name=${each.key}", "--at=${slot.address}"])
    env      = { JOB = slot.job }
    dynamic "scaling" {
      for_each = each.value > 2 ? [1] : []
      content {
        min = 2
        max = each.value
      }
    }
  }

  lifecycle {
    prevent_destroy = each.key == "large"
    ignore_changes  = [priority, role.worker.replicas, role.worker.env["JOB"], heal]

    precondition {
      condition     = each.value % 2 == 0
      error_message = "An even number is needed for ${each.key}."
    }
    postcondition {
      condition     = self.role.worker.replicas == each.value && self.name == "sweep-${each.key}"
      error_message = "Not what was asked for."
    }
  }
}

job "frozen" {
  role "worker" {
    command = ["true"]
  }
  lifecycle {
    ignore_changes = all
  }
}

output "workers" {
  description = "How many there are."
  value       = { for name, j in job.sweep : name => j.role.worker.replicas }
}

output "entries" {
  value = { for k, m in module.region : k => m.entry }
}

output "secret" {
  value     = module.base.token
  sensitive = true
}

output "one" {
  value = job.frozen.role.worker.command[0]
  precondition {
    condition     = job.frozen.priority == 0
    error_message = "Frozen has a priority."
  }
}

check "size" {
  assert {
    condition     = job.sweep["large"].role.worker.replicas <= 8
    error_message = "Large is larger than the cluster."
  }
}

moved {
  from = job.trainer
  to   = job.sweep["small"]
}

moved {
  from = job.before
  to   = job.trainer
}

moved {
  from = module.area["eu"]
  to   = module.region["eu"]
}

removed {
  from = job.old
  lifecycle {
    destroy = false
  }
}

removed {
  from    = module.gone["x"].job.train
  destroy = false
}

removed {
  from = job.older
}

removed {
  from    = module.left["a"]
  destroy = false
}

import {
  to = job.frozen
  id = "frozen-7f9d2"
}

import {
  for_each = { "0" = "pod-a", "1" = "pod-b" }
  to       = job.sweep["large"].worker[tonumber(each.key)]
  id       = each.value
}
