provider "kubernetes" {
  namespace = "kubeflow"
}

# Imported: PyTorchJob pytorch.simple of the namespace kubeflow, its master one of the workers.
job "pytorch-simple" {
  provider = "kubernetes"

  # The container pytorch is named main here.
  role "worker" {
    replicas = 4
    image    = "registry.example/pytorch-mnist:v1"
    command  = ["python3", "/opt/mnist/mnist.py", "--epochs=1"]
    pod = {
      spec = {
        containers = [{
          imagePullPolicy = "Always"
          name            = "main"
        }]
      }
    }
  }

  heal {
    budget {
      restarts = 0
    }
  }
}

# Imported: PyTorchJob static-torchrun of the namespace kubeflow.
job "static-torchrun" {
  provider = "kubernetes"

  # The container pytorch is named main here.
  role "master" {
    processes = 8
    image     = "registry.example/llm:1"
    command   = ["sh", "-c", "set -ex\npip install -r requirements.txt\npython3 train.py --role master --host \"$HOSTNAME\"\n"]
  }

  # The container pytorch is named main here.
  role "worker" {
    replicas = 2
    image    = "registry.example/llm:1"
    command  = ["/bin/train", "--rank=$(RANK)"]
  }
}
