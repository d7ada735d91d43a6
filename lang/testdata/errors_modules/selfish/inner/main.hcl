module "outer" {
  source = "../"
}
