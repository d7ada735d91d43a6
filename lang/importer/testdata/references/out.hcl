provider "kubernetes" {
}

provider "volcano" {
}

# Imported: Job indexed.
job "indexed" {
  provider = "kubernetes"

  # The container c is named main here.
  role "worker" {
    replicas = 2
    image    = "registry.example/c:1"
    command  = ["python", "t.py", slot.index, "--out=/data/${slot.index}/1", "${"$(A) $$ 5$"}${slot.index}", "$(NOBODY)", "$(POD_IP)", "l", "$(FROM_MAP)", "$${A} $A %%{A}"]
    env = {
      A                    = "1"
      B                    = "12 $(A)"
      COST                 = "5$"
      JOB_COMPLETION_INDEX = slot.index
      LATER                = "l"
    }
    pod = {
      spec = {
        containers = [{
          env = [{
            name = "POD_IP"
            valueFrom = {
              fieldRef = {
                fieldPath = "status.podIP"
              }
            }
          }]
          envFrom = [{
            configMapRef = {
              name = "settings"
            }
          }]
          name = "main"
        }]
      }
    }
  }
}

# Imported: Job scripts.
job "scripts" {
  provider = "kubernetes"

  # The container c is named main here.
  role "worker" {
    replicas    = 2
    image       = "registry.example/c:1"
    command     = ["python3", "t.py", "--shard=${slot.index}", "--cost=5"]
    working_dir = "/data/${slot.index}"
    env = {
      COST                 = "5"
      JOB_COMPLETION_INDEX = slot.index
      SHARD                = slot.index
    }
    pod = {
      spec = {
        initContainers = [{
          command = ["fetch", "$(JOB_COMPLETION_INDEX)"]
          image   = "registry.example/i:1"
          name    = "fetch"
        }]
      }
    }
  }
}

# Imported: TrainJob unlaunched.
job "unlaunched" {
  provider = "kubernetes"

  # The container node is named main here.
  role "worker" {
    image   = "registry.example/t:1"
    command = ["python", "t.py"]
  }
}

# Imported: PyTorchJob torch.
job "torch" {
  provider = "kubernetes"

  # The container pytorch is named main here.
  role "worker" {
    replicas = 4
    image    = "registry.example/t:1"
    command  = ["sh", "-c", "echo $(hostname) $(hostname) $$; exec python3 t.py --a 1 --rank $(RANK)"]
    env = {
      A     = "1"
      EARLY = "$(LATER)"
      LATER = "l"
    }
    pod = {
      spec = {
        initContainers = [{
          command = ["init", "$(A)"]
          image   = "registry.example/i:1"
          name    = "init"
        }]
      }
    }
  }
}

# Imported: TrainJob trainer.
job "trainer" {
  provider = "kubernetes"

  # The container node is named main here.
  role "worker" {
    replicas = 2
    image    = "registry.example/t:1"
    command  = ["python3", "t.py", "1", "2", "$(KUBERNETES_SERVICE_HOST)", "$(REDIS_PORT_6379_TCP_ADDR)"]
    env = {
      A    = "1"
      COST = "5$"
    }
    pod = {
      spec = {
        containers = [{
          env = [{
            name = "TOKEN"
            valueFrom = {
              secretKeyRef = {
                key  = "token"
                name = "s"
              }
            }
            }, {
            name  = "MIX"
            value = "1-5$$-$$-$(TOKEN)"
            }, {
            name  = "API"
            value = "$(KUBERNETES_SERVICE_HOST)"
            }, {
            name  = "STORE"
            value = "$(REDIS_SERVICE_HOST):$(REDIS_SERVICE_PORT)"
          }]
          name = "main"
        }]
      }
    }
  }
}

# Imported: Job volcano.
job "volcano" {
  provider = "volcano"

  # The container w is named main here.
  role "worker" {
    replicas = 2
    image    = "registry.example/w:1"
    command  = ["./w", "--index=${slot.index}", "--of=2", "$(VC_WORKER_HOSTS)"]
    env = {
      VC_TASK_INDEX = slot.index
      VK_TASK_INDEX = slot.index
    }
  }
}

# Imported: ElasticJob elastic.
job "elastic" {
  provider = "kubernetes"

  role "worker" {
    replicas = 2
    image    = "registry.example/e:1"
    command  = ["./e", "2", "$(NODE_RANK)", "c$"]
    env = {
      COMMON = "c$"
    }
  }
}
