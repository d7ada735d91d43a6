provider "kubernetes" {
  namespace = "ml"
}

# Imported: PyTorchJob elastic-imagenet of the namespace ml.
job "elastic-imagenet" {
  provider = "kubernetes"

  # The container pytorch is named main here.
  role "worker" {
    replicas  = 2
    processes = 4
    image     = "registry.example/imagenet:2.4"
    command   = ["python", "-u", "/workspace/examples/imagenet/main.py", "--arch=resnet18", "--epochs=20"]
    env = {
      LOGLEVEL = "DEBUG"
    }
    pod = {
      metadata = {
        annotations = {
          "sidecar.istio.io/inject" = "false"
        }
      }
      spec = {
        containers = [{
          env = [{
            name = "POD_IP"
            valueFrom = {
              fieldRef = {
                fieldPath = "status.podIP"
              }
            }
            }, {
            name  = "PEER"
            value = "$(POD_IP):29400"
          }]
          name = "main"
          }, {
          image = "registry.example/exporter:1"
          name  = "exporter"
          ports = [{
            containerPort = 9400
          }]
        }]
        priorityClassName = "high"
        securityContext = {
          fsGroup = 1000
        }
        tolerations = [{
          effect   = "NoSchedule"
          key      = "nvidia.com/gpu"
          operator = "Exists"
        }]
      }
    }
    scaling {
      min = 1
      max = 4
    }
    resources {
      cpu = 4
      devices = {
        "nvidia.com/gpu" = 4
      }
    }
  }

  rendezvous {
    settle = "20s"
  }

  heal {
    budget {
      restarts = 102
    }
  }
}
