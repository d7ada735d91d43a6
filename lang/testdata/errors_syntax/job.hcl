job "a" {
  role "worker" {
    replicas = var.declared_there * 2
    command  = ["train", "--x=${var.size"]
  }
}
