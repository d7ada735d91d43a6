# Two ranks learn digits; with the local provider as processes on this machine.

job "digits" {
  role "worker" {
    replicas    = 2
    command     = ["python3", "train.py", "--steps=100000", "--step-ms=20"]
    working_dir = var.home # not beside this file: a process that is restarted would find another revision, or none
    stop_grace  = "5s"

    resources {
      cpu    = 0.1
      memory = "256MiB"
    }
  }

  progress {
    pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
  }
  checkpoint {
    dir     = "${var.home}/checkpoints"
    signal  = "SIGUSR1"
    pattern = "saved step (?P<step>\\d+)" # so that a plan can say from which step it goes on
  }
  rendezvous {
    settle = "1s" # one machine: both ranks are there at once
  }
}
