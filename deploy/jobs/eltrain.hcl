variable "advertise" {
  type        = string
  default     = ""
  description = "Address and port at which the jobs' pods reach this master. The Deployment sets it to its Service."
}

variable "agent_image" {
  type        = string
  default     = ""
  description = "Image from which the jobs' pods get the agent. The Deployment sets it to its own image."
}

variable "tls_cert" {
  type        = string
  default     = ""
  description = "File with the certificate of this master's service. deploy/tls sets it to its Secret."
}

variable "tls_key" {
  type        = string
  default     = ""
  description = "File with its key."
}

eltrain {
  required_version = ">= 0.1"

  # A Secret and a Lease, in the jobs' namespace. All masters with the same files and the same namespace, even on a
  # laptop, share them: one leads, the others wait.
  state "kubernetes" {
    name = "main"
  }
  service {
    advertise = var.advertise
    tls_cert  = var.tls_cert
    tls_key   = var.tls_key
    metrics   = ":9464"
  }
}

provider "kubernetes" {
  agent_image = var.agent_image
}
