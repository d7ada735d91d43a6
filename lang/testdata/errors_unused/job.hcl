eltrain {
  service {
    metrics_by_slot = true
  }
}

job "a" {
  role "worker" {
    command = ["true"]
  }
}
