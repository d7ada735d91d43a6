eltrain {
  service {
    metrics = "9464"
  }
}

job "a" {
  role "worker" {
    command = ["true"]
  }
}
