# Parameter servers that follow their workers: one for each four, however many there are. They start before the workers that they are
# for, and stop after them.

job "parameter-servers" {
  role "ps" {
    command  = ["sleep", "3600"]
    ranked   = false
    replicas = ceil(role.worker.replicas / 4)
    resources {
      cpu = 0.1
    }
  }
  role "worker" {
    command    = ["python3", "../mnist-local/train.py", "--steps=20000"]
    depends_on = [role.ps]
    resources {
      cpu = 0.1
    }
    scaling {
      min = 2
      max = 8
    }
  }
  checkpoint {
    dir    = "ckpt/parameter-servers"
    signal = "SIGUSR1"
  }
}
