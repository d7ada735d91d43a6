job "b" {
  role "worker" {
    command = ["train", var.declared_there, local.x, module.m.x]
  }
}

output "o" {
  value = job.a.name
}
