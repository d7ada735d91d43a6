variable "name" {
  type = string
}

job "train" {
  role "worker" {
    command = ["train", var.name]
  }
}

output "label" {
  value = var.name
}
