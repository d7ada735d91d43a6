variable "entry" {
  type = list(string)
}

variable "token" {
  default = ""
}

variable "options" {
  type    = object({ rate = optional(number, 0.1) })
  default = {}
}

locals {
  recipe = file("recipe.txt")
}

job "train" {
  role "worker" {
    command     = concat(["python3"], var.entry, [trimspace(local.recipe), "--rate=${var.options.rate}"])
    env         = var.token == "" ? {} : { TOKEN = var.token }
    working_dir = module.inner.dir
  }
}

module "inner" {
  source = "./inner"
}

output "entry" {
  value = var.entry
}

output "token" {
  value = var.token
}

output "name" {
  value = job.train.name
}

moved {
  from = job.training
  to   = job.train
}

check "inside" {
  assert {
    condition     = length(var.entry) > 0
    error_message = "No entry."
  }
}
