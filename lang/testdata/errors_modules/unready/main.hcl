eltrain {}

provider "local" {}

variable "size" {
  type = number
}

import {
  to = job.x
  id = "x"
}

job "x" {
  role "w" {
    command  = ["x", var.siez]
    replicas = var.size
  }
}
