package checkpoint

import (
	"regexp"
	"sync"
)

// Layout is how a framework keeps checkpoints in a directory.
type Layout struct {
	Name string
	// Entry matches the names of its checkpoints, such as Like. The number in the group step is the step; without the group, see stepOf.
	Entry string
	Like  string
	// Dir: its checkpoints are directories.
	Dir bool
	// Has are patterns (path.Match) of files. A directory is of this layout only if one of them is in it; "" if names suffice.
	Has []string
	// Marks are files in it of which one is written last. Pointer is a file beside the checkpoints that names the newest whole one,
	// by its name or its step, and is written last; if it is Optional, others of the layout do without. Without any of them, what is
	// whole is known from the content and the times of its files.
	Marks    []string
	Pointer  string
	Optional bool
	// Unless is a file that is in it until it is complete.
	Unless string
	// Step is a file in it, in JSON, that has the step as global_step. It is of more weight than the name.
	Step string
	// Alone: it counts only where no checkpoint of another layout is.
	Alone bool
	// Source is what writes it so.
	Source string
}

// Temporary is the layout in Checkpoint of what its name says is still being written, and Pointer that of a pointer which names what is
// elsewhere.
const (
	Temporary = "temporary"
	Pointer   = "pointer"
)

// Layouts are the known layouts. The first that fits an entry counts.
var Layouts = []Layout{
	{
		Name: "megatron", Like: "iter_0000500", Entry: `^iter_(?P<step>\d+)$`, Dir: true, Pointer: "latest_checkpointed_iteration.txt",
		Source: "Megatron-LM, megatron/training/checkpointing.py: the number of the newest is written once all ranks have saved, with async saving too",
	},
	{
		Name: "verl", Like: "global_step_500", Entry: `^global_step_(?P<step>\d+)$`, Dir: true, Pointer: "latest_checkpointed_iteration.txt",
		Source: "verl, whose trainers write Megatron-LM's file",
	},
	{
		Name: "deepspeed", Like: "global_step500", Entry: `^global_step(?P<step>\d+)$`, Dir: true, Pointer: "latest",
		Source: "DeepSpeed, deepspeed/runtime/engine.py (save_checkpoint): the tag of the newest is written last",
	},
	{
		Name: "accelerate", Like: "checkpoint-500", Entry: `^checkpoint[-_](?P<step>\d+)$`, Dir: true, Has: []string{"random_states_0.pkl"}, Marks: []string{"random_states_0.pkl"},
		Source: "Accelerate, accelerate/checkpointing.py (save_accelerator_state), as diffusers uses it: the random states come last",
	},
	{
		Name: "transformers", Like: "checkpoint-500", Entry: `^checkpoint-(?P<step>\d+)$`, Dir: true,
		Marks: []string{"trainer_state.json"}, Unless: "checkpoint-is-incomplete.txt", Step: "trainer_state.json",
		Source: "Hugging Face Trainer, transformers/trainer.py (_save_checkpoint) and trainer_jit_checkpoint.py",
	},
	{
		Name: "lightning", Like: "epoch=1-step=500.ckpt", Entry: `\.ckpt$`, Dir: true, Marks: []string{"meta.pt", "latest"},
		Source: "Lightning's strategies for FSDP, which write meta.pt last, and for DeepSpeed",
	},
	{
		Name: "torchtitan", Like: "step-500", Entry: `^step-(?P<step>\d+)$`, Dir: true, Has: []string{".metadata", "*.distcp"}, Marks: []string{".metadata"},
		Source: "torchtitan, torchtitan/components/checkpoint.py: PyTorch's distributed checkpoints",
	},
	{
		Name: "dcp", Like: "mine-500", Entry: `^[^.]`, Dir: true, Has: []string{".metadata", "*.distcp"}, Marks: []string{".metadata"},
		Source: "PyTorch, torch/distributed/checkpoint/filesystem.py: .metadata is renamed into place, last",
	},
	{
		Name: "directory", Like: "step_500", Entry: `(?i)(^|[^a-z])(global_?step|step|iter|iteration|epoch|ckpt|checkpoint)s?[^a-z]*\d|^\d+$`, Dir: true, Pointer: "latest", Optional: true,
		Source: "any other program that makes a directory for each checkpoint",
	},
	{
		Name: "lightning", Like: "epoch=1-step=500.ckpt", Entry: `^epoch=\d+-step=(?P<step>\d+)(-v\d+)?\.ckpt$|^last(-v\d+)?\.ckpt$`,
		Source: "Lightning, ModelCheckpoint: written beside and renamed",
	},
	{
		Name: "file", Like: "ckpt_500.pt", Entry: `(?i)(step|iter|iteration)[^0-9a-z]*\d|\.(pt|pth|pt2|ckpt|bin|safetensors|pkl|pickle|npz|npy|h5|hdf5|msgpack|weights|tar)(\.\d+)?$|^(ckpt|checkpoint|model|epoch)[-_.]?\d+$|^\d+$`,
		Source: "nanoGPT, which replaces ckpt.pt in place, and any other program that writes a file for each checkpoint",
	},
	{
		Name: "other", Like: "state", Entry: `^[^.]`, Alone: true,
		Source: "any other file, if it is none of those that programs write beside checkpoints",
	},
}

// besides are names of files that are no checkpoints.
var besides = regexp.MustCompile(`(?i)tfevents|\.(log|txt|json|jsonl|yaml|yml|toml|csv|tsv|md|html|py|sh|lock|pid|out|err)$`)

// pointers are files that may name the newest checkpoint.
var pointers = []string{"latest_checkpointed_iteration.txt", "latest", "latest.txt", "last_checkpoint"}

// compiled are the patterns of Layouts.
var compiled = sync.OnceValue(func() []*regexp.Regexp {
	all := make([]*regexp.Regexp, len(Layouts))
	for i, l := range Layouts {
		all[i] = regexp.MustCompile(l.Entry)
	}
	return all
})
