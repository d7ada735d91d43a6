# What people write who know Terraform, or look for an argument at the wrong place.
terraform {}
resource "eltrain_job" "x" {
  name = "x"
}
data "local_file" "x" {}
role "worker" {}

job "counted" {
  count      = 3
  depends_on = [job.other]
  command    = ["x"]
  replicas   = 2
  image      = "x"
  role "worker" {
    count    = 2
    for_each = toset(["a"])
    command  = ["python3", "train.py", "--seed=${count.index}"]
  }
}

job "other" {
  role "worker" {
    comand     = "python3 train.py"
    replica    = 4
    stop_grace = 30
    env        = { A = ["x"] }
    scale {
      min = 2
    }
  }
  role "ps" {
    command  = "python3 train.py"
    replicas = job.counted.role.worker.replicas
    image    = locals.image
  }
  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [job.counted]
    ignore_changes        = [replicas, role.ps.imag]
    prevent_destroy       = "yes"
  }
}

check "x" {
  condition     = true
  error_message = "x"
}
