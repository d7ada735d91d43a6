job "watch" {
  role "w" {
    command = ["watch", slot.address]
  }
}

output "dir" {
  value = "inner"
}
