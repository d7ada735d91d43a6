# The job of ../mnist-local in pods. Put this file beside its job.hcl, instead of nodes.hcl, and change one line
# there: provider = "kubernetes". e2e/kubernetes does so on a control plane of its own.
#
# The pods are created in the namespace of your kubeconfig's context. `eltrain plan` shows where they would fit.

variable "image" {
  type        = string
  description = "Has Python 3.9 or later and, in its working directory, train.py."
}

variable "agent_image" {
  type        = string
  description = "The image of deploy/Dockerfile, from which the agent comes into the pods."
}

variable "pod" {
  type        = any
  default     = {}
  description = <<-EOT
    Overlay on every pod. Checkpoints have to outlive a pod and its node, so here belongs the volume of "ckpt":
    { spec = {
      volumes    = [{ name = "ckpt", persistentVolumeClaim = { claimName = "mnist" } }]
      containers = [{ name = "main", volumeMounts = [{ name = "ckpt", mountPath = "/train/ckpt" }] }]
    } }
  EOT
}

provider "kubernetes" {
  image       = var.image
  agent_image = var.agent_image
  pod         = var.pod
}
