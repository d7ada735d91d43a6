eltrain {
  state "kubernetes" {
    path      = "eltrain.state"
    name      = "Training_1"
    namespace = "ml.team"
  }
}

job "j" {
  role "worker" {
    command = ["true"]
  }
}
