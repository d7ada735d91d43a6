provider "kubernetes" {
  namespace = "dlrover"
}

# Imported: ElasticJob nanogpt of the namespace dlrover.
job "nanogpt" {
  provider = "kubernetes"
  limits {
    cpu    = 64
    memory = "256GiB"
    devices = {
      "nvidia.com/gpu" = 8
    }
  }

  role "worker" {
    replicas    = 4
    processes   = 2
    image       = "registry.example/nanogpt:0.3"
    command     = ["python3", "train.py", "--data_dir", "/data", "--epochs", "1"]
    working_dir = "/workspace"
    env = {
      NCCL_DEBUG = "WARN"
    }
    stop_grace = "2m"
    pod = {
      spec = {
        containers = [{
          env = [{
            name = "HF_TOKEN"
            valueFrom = {
              secretKeyRef = {
                key  = "token"
                name = "hf"
              }
            }
          }]
          imagePullPolicy = "IfNotPresent"
          name            = "main"
          volumeMounts = [{
            mountPath = "/data"
            name      = "data"
          }]
        }]
        nodeSelector = {
          accelerator = "a100"
        }
        volumes = [{
          name = "data"
          persistentVolumeClaim = {
            claimName = "corpus"
          }
        }]
      }
    }
    scaling {
      min  = 2
      max  = 4
      step = 2
    }
    resources {
      cpu    = 8
      memory = "48GiB"
      devices = {
        "nvidia.com/gpu" = 2
      }
      shm = "16GiB"
    }
  }

  rendezvous {
    settle = "30s"
  }

  heal {
    budget {
      restarts = 6
    }
  }
}
