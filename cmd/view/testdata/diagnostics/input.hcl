job "mnist" {
  even   = var.replicas + var.missing
  secret = var.token + var.replicas
  list   = [
    var.names["x"],
    var.nothing + 1,
  ]
}
