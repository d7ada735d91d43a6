# Paths of what outlives a revision of the repository. None is beside these files: they are
# replaced as a whole with each commit.

variable "home" {
  type        = string
  description = "A directory that no commit replaces: the state, checkpoints, the training program. Set ELTRAIN_VAR_home."
}

variable "listen" {
  type    = string
  default = "127.0.0.1:7070"
}

eltrain {
  state "file" {
    path = "${var.home}/eltrain.state"
  }
  service {
    listen               = var.listen
    reconcile_token_file = "${var.home}/webhook.token"
  }
}
