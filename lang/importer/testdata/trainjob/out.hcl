provider "kubernetes" {
  namespace = "ml"
}

# Imported: TrainJob llama- of the namespace ml.
job "llama" {
  provider = "kubernetes"

  # The container node is named main here.
  role "worker" {
    replicas  = 2
    processes = 4
    command   = ["python3", "finetune.py", "--lr=1e-4"]
    env = {
      EPOCHS = "3"
    }
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
          name = "main"
          resources = {
            limits = {
              ephemeral-storage = "10Gi"
            }
          }
          volumeMounts = [{
            mountPath = "/data"
            name      = "data"
          }]
        }]
        nodeSelector = {
          pool = "gpu"
        }
        serviceAccountName = "trainer"
        volumes = [{
          name = "data"
          persistentVolumeClaim = {
            claimName = "alpaca"
          }
        }]
      }
    }
    resources {
      memory = "64GiB"
      devices = {
        "nvidia.com/gpu" = 4
      }
    }
  }
}
