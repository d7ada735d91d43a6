# The job of ../mnist-local as a gang of the Volcano scheduler. Put this file beside its job.hcl, instead of
# nodes.hcl, and change one line there: provider = "volcano". e2e/volcano does so on a control plane of its own.
#
# docs/volcano.md lists what the cluster needs, and what `eltrain plan` reports if it is missing.

variable "image" {
  type        = string
  description = "Has Python 3.9 or later and, in its working directory, train.py."
}

variable "agent_image" {
  type        = string
  description = "The image of deploy/Dockerfile, from which the agent comes into the pods."
}

variable "queue" {
  type        = string
  default     = "default"
  description = "The queue that the gang is admitted to; `kubectl get queues` lists them."
}

variable "pod" {
  type        = any
  default     = {}
  description = "Overlay on every pod, as in ../mnist-kubernetes: the volume of \"ckpt\" belongs here."
}

provider "volcano" {
  image       = var.image
  agent_image = var.agent_image
  queue       = var.queue
  pod         = var.pod
}
