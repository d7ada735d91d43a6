#!/usr/bin/env bash
# A demo on this machine, in about 40 seconds: a plan, a world of three, a training process killed
# and healed, an agent killed and replaced, a node added and the world growing, the end of training with
# exactly the loss of an undisturbed run, and a destroy that leaves nothing behind.
#
#   demo.sh BINARY      BINARY is the built eltrain; `make demo` builds it and calls this.
#
# Needs bash, coreutils and python3. No network, no Kubernetes. Works in a temporary directory, which is
# removed at the end, on Ctrl-C too.
set -euo pipefail

[ $# -eq 1 ] && [ -x "$1" ] || { echo "usage: ${0##*/} BINARY   (make demo builds it)" >&2; exit 2; }
eltrain=$(realpath "$1")
example=$(realpath "$(dirname "$0")")/mnist-local
steps=1500 # of 20 ms
bound=90 # s; longest wait for anything, rarely needed

# The caller's settings must not change the demo.
unset "${!ELTRAIN_@}" "${!TORCHELASTIC_@}" RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ELTRAIN_VAR_steps=$steps

work=$(mktemp -d "${TMPDIR:-/tmp}/eltrain-demo.XXXXXX")
cp "$example"/{job.hcl,nodes.hcl,train.py} "$work"
cd "$work"
master="" finished=""

# ---- functions ---------------------------------------------------------------------------

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold="" plain=""; fi

say() { printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; shift; for line; do printf '   %s\n' "$line"; done; }

# run shows a command and its output.
run() {
	printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"
	if [ "$1" = eltrain ]; then set -- "$eltrain" "${@:2}"; fi
	timeout --foreground "$bound" "$@" 2>&1
}

fail() { printf '\nThe demo failed: %s\n' "$*" >&2; exit 1; }

# watched shows the master's new output.
told=0
watched() {
	local now
	now=$(wc -l <master.log)
	tail -n "+$((told + 1))" master.log | head -n "$((now - told))" | while IFS= read -r line; do printf '   | %s\n' "$line"; done
	told=$now
}

cat >look.py <<'PYTHON'
"""Reads `eltrain status -json` and the printed losses, for the demo."""
import json, os, re, signal, subprocess, sys, time

signal.signal(signal.SIGINT, signal.SIG_DFL)


def job():
    out = subprocess.run([sys.argv[1], "status", "-json"], stdout=subprocess.PIPE, timeout=30).stdout
    return next(iter(json.loads(out)["jobs"]), {})


def wait(seconds, since, condition):
    """Waits until the condition, in the fields of a job, holds; prints how many seconds after since."""
    deadline = time.monotonic() + float(seconds)
    while True:
        now = job()
        if now and eval(condition, {}, now):
            print(f"{time.time() - float(since):.1f}")
            return 0
        if now.get("phase") == "Failed" or time.monotonic() > deadline:
            print(f"{condition} does not come true; the job is {json.dumps(now, indent=1)}", file=sys.stderr)
            return 1
        time.sleep(0.03)


def slot(name, field):
    print(next(s[field] for s in job()["slots"] if s["address"] == "job.mnist." + name))


def losses(path):
    """The losses in a file by step. A recomputed step must print the same one."""
    found = {}
    for step, loss in re.findall(r"step (\d+) loss (\S+)", open(path).read()):
        if found.setdefault(int(step), loss) != loss:
            sys.exit(f"step {step} has the losses {found[int(step)]} and {loss}")
    return found


def compare(healed, alone, steps):
    a, b = losses(healed), losses(alone)
    steps = int(steps)
    print(f"   healed run:      loss {a.get(steps)} at step {steps}, {len(a)} losses printed")
    print(f"   undisturbed run: loss {b.get(steps)} at step {steps}, {len(b)} losses printed")
    differ = [s for s in a if a[s] != b.get(s)]
    if differ:
        sys.exit(f"They differ at the steps {differ}.")
    if steps not in a or steps not in b:
        sys.exit("One of them did not reach the last step.")


def left(directory):
    """Prints the processes that work in the directory. Without a /proc it cannot tell."""
    for pid in filter(str.isdigit, os.listdir("/proc")) if os.path.isdir("/proc") else ():
        try:
            if int(pid) != os.getpid() and os.readlink(f"/proc/{pid}/cwd").startswith(directory):
                print(pid, open(f"/proc/{pid}/cmdline").read().replace("\0", " "))
        except OSError:
            pass  # ended meanwhile, or not ours


sys.exit({"wait": wait, "slot": slot, "losses": losses, "compare": compare, "left": left}[sys.argv[2]](*sys.argv[3:]))
PYTHON

look() { python3 look.py "$eltrain" "$@"; }

# await CONDITION WHAT waits, and prints the time since the last mark.
mark() { since=$(date +%s.%N); }
await() {
	local took
	took=$(look wait "$bound" "$since" "$1") || { cat master.log >&2; fail "$2 did not come about within $bound s."; }
	printf '   %s (after %s s).\n' "$2" "$took"
}

# end_master interrupts the watching eltrain, as Ctrl-C does.
end_master() {
	[ -n "$master" ] || return 0
	kill -TERM "$master" 2>/dev/null || true
	local tries
	for ((tries = 0; tries < bound * 10; tries++)); do
		kill -0 "$master" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$master" 2>/dev/null || true
	wait "$master" 2>/dev/null || true
	master=""
}

# clean stops everything that runs, however the demo ends.
clean() {
	local code=$?
	trap '' INT TERM HUP
	trap - EXIT
	if [ -z "$finished" ]; then
		printf '\nEnding what the demo has started.\n' >&2
		end_master
		timeout "$bound" "$eltrain" destroy -auto-approve -lock-timeout=30s >/dev/null ||
			{ printf 'eltrain destroy failed in %s\n' "$work" >&2; exit 1; }
	fi
	cd /
	rm -rf "$work"
	exit "$code"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- the demo ----------------------------------------------------------------------------

say "A job" \
	"job.hcl declares data-parallel training of 2 to 4 workers; nodes.hcl declares the nodes." \
	"The nodes are this machine, cut into pieces. We start with three of the four."
cp nodes.hcl four-nodes.txt
python3 - <<'PYTHON'
import re
text = open("nodes.hcl").read()
three, n = re.subn(r'  node "n4" \{.*?\n  \}\n', "", text, flags=re.S)
assert n == 1, "nodes.hcl has no node n4"
open("nodes.hcl", "w").write(three)
PYTHON
run eltrain validate
run eltrain plan

say "It runs" \
	"eltrain apply -watch carries out the plan and keeps running: it is the job's master now."
printf '\n%s$ eltrain apply -watch -auto-approve &%s\n\n' "$bold" "$plain"
mark
set -m # the master gets its own process group: Ctrl-C goes to the demo, which then stops it in order
"$eltrain" apply -watch -auto-approve >master.log 2>&1 &
master=$!
set +m
await 'phase == "Running" and world_size == 3 and step >= 100' "Three workers train together, the first 100 steps are done"
told=$(python3 -c 'print(next((n for n, line in enumerate(open("master.log")) if line.startswith("Watching")), 0))')
watched
run eltrain status

victim=$(look slot 'worker[1]' pid)
say "A training process is killed" \
	"kill -9 $victim: worker[1]'s python3. The others cannot continue without it: all ranks stop, and" \
	"the same agents restart them in a new generation, from the newest checkpoint."
kill -KILL "$victim"
mark
await 'phase == "Running" and generation >= 2 and world_size == 3' "Healed: three train again, generation 2"
await 'step >= 400' "Training continues, past step 400"
watched
run eltrain status

victim=$(look slot 'worker[2]' agent_pid)
say "An agent is killed" \
	"kill -9 $victim: the agent of worker[2]. Its training process ends with it; no orphan keeps training." \
	"The slot keeps its place: it gets a new agent, its next incarnation."
kill -KILL "$victim"
mark
await 'phase == "Running" and generation >= 3 and world_size == 3' "Healed: three train again, generation 3"
await 'step >= 700' "Training continues, past step 700"
watched

say "A node is added" \
	"nodes.hcl gets its fourth node back. The watching eltrain reads the file as it changes, and the job" \
	"grows to its maximum. The other slots keep their ranks."
mark
mv four-nodes.txt nodes.hcl
await 'phase == "Running" and generation >= 4 and world_size == 4' "Four train together, generation 4"
await 'step >= 1000' "Training continues, past step 1000"
watched
run eltrain status

say "The end of training"
mark
await 'phase == "Succeeded"' "All $steps steps are done"
watched
run eltrain events

say "Was it healed right?" \
	"The global batch is fixed, so the loss at a step is the same for any number of workers. If a recovery" \
	"had lost or repeated a step, the losses would differ. So we train once more: the script alone, one" \
	"process, no eltrain, no faults."
timeout --foreground "$bound" "$eltrain" logs job.mnist >healed.txt
timeout --foreground "$bound" python3 train.py --steps="$steps" --step-ms=0 --ckpt-dir=alone >alone.txt
look compare healed.txt alone.txt "$steps" || fail "the healed run and the undisturbed one disagree."
printf '   %sThe very same loss.%s\n' "$bold" "$plain"

say "Destroy" "The master is interrupted, as by Ctrl-C, and the job is destroyed."
end_master
run eltrain destroy -auto-approve
cd / # otherwise this shell would count as left behind
left=$(python3 "$work/look.py" "$eltrain" left "$work")
[ -z "$left" ] || fail "these processes are left: $left"
printf '\n   Nothing is left: no process is running in the demo\047s directory.\n'
finished=yes
