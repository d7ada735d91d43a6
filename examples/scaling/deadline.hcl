# The smallest size at which the training is over in time. How many steps there are is said by the program.

job "deadline" {
  role "worker" {
    command = ["python3", "../mnist-local/train.py", "--steps=20000", "--progress"]
    resources {
      cpu = 0.1
    }
    scaling {
      min    = 2
      max    = 8
      freeze = "2m" # near the end no restart is worth it
    }
  }
  checkpoint {
    dir    = "ckpt/deadline"
    signal = "SIGUSR1"
  }
  deadline = "2027-01-04T08:00:00Z"
}
