variable "advertise" {
  type        = string
  default     = ""
  description = "Address and port at which the jobs' pods reach this master. The Deployment sets it to its Service."
}

eltrain {
  required_version = ">= 0.1"

  # A Secret and a Lease, beside the jobs. Whoever uses the same files and the same namespace, from a laptop
  # too, shares them: one leads, the others wait.
  state "kubernetes" {
    name = "main"
  }
  service {
    advertise = var.advertise
  }
}

provider "kubernetes" {}
