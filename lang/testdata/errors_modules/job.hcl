variable "secret" {
  sensitive = true
  default   = ["a"]
}

module "git" {
  source = "git::https://example.com/base.git?ref=v1"
}
module "registry" {
  source = "example/base/local"
}
module "bare" {
  source = "base"
}
module "absolute" {
  source = "/srv/base"
}
module "computed" {
  source = "./${var.secret[0]}"
}
module "number" {
  source = 7
}
module "nowhere" {
  source = "./bsae"
}
module "file" {
  source = "./job.hcl"
}
module "none" {}

module "empty" {
  source = "./empty"
}
module "self" {
  source = "."
}
module "selfish" {
  source = "./selfish"
}
module "unready" {
  source = "./unready"
  size   = "many"
}

module "old" {
  source     = "./base"
  name       = "x"
  nmae       = "y"
  count      = 2
  version    = "1.0"
  depends_on = [module.git]
  providers  = {}
  variables {}
}
module "twice" {
  source = "./base"
  name   = "a"
}
module "twice" {
  source = "./base"
  name   = "b"
}
module "unset" {
  source = "./base"
}
module "lists" {
  source   = "./base"
  for_each = ["a", "b"]
  name     = each.ky
}
module "numbers" {
  source   = "./base"
  for_each = toset([1, 2])
  name     = each.key
}
module "secrets" {
  source   = "./base"
  for_each = toset(var.secret)
  name     = each.key
}
module "nothing" {
  source   = "./base"
  for_each = null
  name     = each.key
}
module "text" {
  source   = "./base"
  for_each = "a"
  name     = each.key
}
module "dots" {
  source   = "./base"
  for_each = toset(["a.b"])
  name     = each.key
}
module "ahead" {
  source = "./base"
  name   = module.behind.label
}
module "behind" {
  source = "./base"
  name   = local.round
}
module "short" {
  source = "./base"
  name   = each.key
}
module "empty_set" {
  source   = "./unready"
  for_each = {}
  size     = each.value
  sise     = 1
}

locals {
  round = module.ahead.label
}

module "base" {
  source = "./base"
  name   = "x"
}

job "base-train" {
  role "worker" {
    command = [module.base.lable, module.bsae.label, module.base.label.x.y, module]
  }
}
