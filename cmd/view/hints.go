package view

import "github.com/eltrain/eltrain/signature"

// hints are what a user can change about a failure.
var hints = map[signature.Hint]string{
	signature.HintDeviceMemory:      "reduce the batch size of each process and accumulate gradients over more steps, use activation checkpointing, or shard the model over more processes",
	signature.HintHostMemory:        "raise resources { memory }, or load data with fewer workers",
	signature.HintSharedMemory:      "raise resources { shm }, or load data with fewer workers",
	signature.HintDiskSpace:         "free space where it writes, for example by keeping fewer checkpoints",
	signature.HintStorage:           "check the disk or the file server that it uses",
	signature.HintRemoteService:     "check the service that it uses, and the way to it",
	signature.HintOpenFiles:         "raise the limit of open files (ulimit -n), or load data with fewer workers",
	signature.HintThreads:           "raise the limit of processes and threads (ulimit -u, or the pod's), or load data with fewer workers",
	signature.HintPackages:          "install the package, or correct PYTHONPATH or working_dir",
	signature.HintArguments:         "correct the arguments in command",
	signature.HintFiles:             "correct command or working_dir, or add the file to source",
	signature.HintKernelImage:       "install a build for this kind of accelerator",
	signature.HintDevices:           "make resources { devices } and processes fit the devices that the program uses",
	signature.HintLaunchBlocking:    "set CUDA_LAUNCH_BLOCKING=1 in env, so that the traceback shows the call that failed",
	signature.HintCollectiveTimeout: "look for the rank that did not take part; if its work takes so long, raise the timeout of the process group",
}

// Hint says what a user can change about a failure; "" if nothing is known.
func Hint(h signature.Hint) string { return hints[h] }
