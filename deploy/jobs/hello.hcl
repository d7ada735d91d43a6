# A demo job for any cluster. While it runs, try: delete a pod, drain a node, edit replicas.
job "hello" {
  provider = "kubernetes"

  role "worker" {
    image      = "python:3.13-slim"
    replicas   = 2
    command    = ["python3", "-u", "-c", file("hello.py")]
    stop_grace = "5s"

    scaling {
      min = 1
      max = 4
    }
    resources {
      cpu    = 0.1
      memory = "64MiB"
    }
  }

  progress {
    pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
  }
}
