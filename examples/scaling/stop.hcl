# Ends as succeeded, after a checkpoint, once the loss has been low for 200 steps.

job "good-enough" {
  role "worker" {
    command = ["python3", "../mnist-local/train.py", "--steps=20000"]
    resources {
      cpu = 0.1
    }
    scaling {
      min = 2
      max = 8
    }
  }
  checkpoint {
    dir    = "ckpt/good-enough"
    signal = "SIGUSR1"
  }
  stop_when {
    metric = "loss"
    below  = 0.5
    for    = "200 steps"
  }
}
