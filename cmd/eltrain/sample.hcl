# A job to begin with: it counts for five minutes in two slots on this machine. Change it into yours.
# What else there is: docs/language.md. To import a job of another tool: eltrain import -help

job "hello" {
  role "worker" {
    replicas  = 2
    processes = 1 # training processes per slot, as torchrun's --nproc-per-node
    command   = ["sh", "-c", "for step in $(seq 300); do echo step $step loss 0.$((1000 - step)); sleep 1; done"]

    # With this an edit of your script is an edit of the job; otherwise only its name in command is compared:
    # source = ["train.py"]

    # With these, the number of slots follows the capacity, within bounds:
    # scaling {
    #   min = 1
    #   max = 4
    # }
    resources {
      cpu    = 0.1
      memory = "64MiB"
    }
  }

  progress {
    pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
  }

  heal {
    budget {
      restarts = 3
      window   = "1h"
    }
  }
}
