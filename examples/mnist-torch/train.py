#!/usr/bin/env python3
"""Elastic training of a small digit classifier with PyTorch DistributedDataParallel (gloo, CPU).

The same job as ../mnist-local/train.py, with the same flags, output and exit codes, the way
one writes it with PyTorch (1.13 or 2.x). It runs bare, under torchrun and under eltrain.

The global batch is fixed and split over the ranks, and the arithmetic is in float64, so the
loss at step k is the same to about 1e-9 for any world size and any number of restarts. (Not
to the last bit: the order of DDP's sums depends on the world.)
"""
import time

BEGAN = time.monotonic()

import os
import signal

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))

# Until a handler is set SIGUSR1 kills the process, and importing torch takes seconds.
checkpoints_asked = 0


def ask_checkpoint(*_):
    global checkpoints_asked
    checkpoints_asked += 1


signal.signal(signal.SIGUSR1, ask_checkpoint)

import argparse
import datetime
import json
import sys
import traceback

EXIT_CRASHED = 1
EXIT_PEER_LOST = 17  # not a fault of this process: look for the culprit elsewhere


def parse_args():
    env = os.environ.get
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--ckpt-dir", default=env("ELTRAIN_CHECKPOINT_DIR") or "ckpt")
    p.add_argument("--ckpt-every", type=int, default=50, help="steps between checkpoints")
    p.add_argument("--log-every", type=int, default=10, help="steps between printed lines")
    p.add_argument("--step-ms", type=float, default=20, help="least time a step takes")
    p.add_argument("--global-batch", type=int, default=48, help="pictures a step, over all ranks")
    p.add_argument("--pg-timeout", type=float, default=300, help="longest wait for the other ranks, s")
    p.add_argument("--events", default=env("TRAIN_EVENTS", ""), help="write times here, JSON lines")
    faults = p.add_argument_group("faults to try a launcher with")
    faults.add_argument("--crash-at", type=int, metavar="STEP", help="raise an error there, in every world")
    faults.add_argument("--hang-at", type=int, metavar="STEP", help="stop there for ever")
    faults.add_argument("--fault-rank", type=int, default=-1, help="rank that has the fault; -1: the last")
    faults.add_argument("--fault-once", action="store_true", help="only while TORCHELASTIC_RESTART_COUNT is 0")
    return p.parse_args()


# ---- what others read: events and the error file ---------------------------------------


def event(name, **more):
    """One JSON line in one O_APPEND write, so that many processes can share the file."""
    if not ARGS.events:
        return
    record = dict(ev=name, t=time.monotonic(), pid=os.getpid(), rank=RANK, world=WORLD,
                  restart=os.environ.get("TORCHELASTIC_RESTART_COUNT", ""), **more)
    fd = os.open(ARGS.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, (json.dumps(record) + "\n").encode())
    finally:
        os.close(fd)


def write_error_file(err):
    """Tells the launcher why. @record writes the same, but lets destructors run: see leave."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    body = {"message": {
        "message": f"{type(err).__name__}: {err}",
        "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))},
    }}
    with open(path, "w") as f:
        json.dump(body, f)


def memory():
    """VmRSS and VmHWM in kB, where there is a /proc."""
    try:
        with open("/proc/self/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        return {k: int(fields[k].split()[0]) for k in ("VmRSS", "VmHWM")}
    except OSError:
        return {}


# ---- collectives ------------------------------------------------------------------------


class PeerLost(Exception):
    """A collective failed: another rank died, is silent for too long, or never came."""


class collective:
    """gloo and the store report a lost peer as RuntimeError, as they do much else: so this
    marks the lines where a RuntimeError means that."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        return self

    def __exit__(self, kind, err, _):
        if isinstance(err, (RuntimeError, OSError)):
            raise PeerLost(f"{self.what}: {err}") from err


# ---- checkpoints ------------------------------------------------------------------------

KEEP = 2  # the one before the newest stays: a fall-back if the disk garbles the newest


def path_of(directory, step):
    return os.path.join(directory, f"step-{step:08d}.pt")


def checkpoints(directory):
    """Steps of the complete checkpoints, newest first. Unfinished ones have another ending."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted((int(n[5:-3]) for n in names if n.startswith("step-") and n.endswith(".pt")), reverse=True)


def save(directory, state):
    """Writes beside, flushes to disk, then renames: a reader sees all of it or nothing."""
    os.makedirs(directory, exist_ok=True)
    path = path_of(directory, state["step"])
    tmp = f"{path}.tmp.{os.getpid()}"
    with open(tmp, "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)
    fd = os.open(directory, os.O_RDONLY)  # the rename, too, must survive a power cut
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    print(f"saved step {state['step']}", flush=True)
    for old in checkpoints(directory)[KEEP:]:
        os.unlink(path_of(directory, old))
    event("ckpt", step=state["step"])


def resume_from(directory):
    """Step of the newest checkpoint that can be loaded, -1 if there is none; ELTRAIN_RESUME_STEP if that is set."""
    wanted = os.environ.get("ELTRAIN_RESUME_STEP")
    if wanted:
        for later in [step for step in checkpoints(directory) if step > int(wanted)]:
            os.unlink(path_of(directory, later))  # of the course that was given up: no later start may take it for the newest
        return int(wanted)
    for step in checkpoints(directory):
        try:
            torch.load(path_of(directory, step), map_location="cpu")
            return step
        except Exception as err:  # torch.load's errors on a garbled file are of many kinds
            print(f"skipped {path_of(directory, step)}: {err}", file=sys.stderr, flush=True)
    return -1


# ---- data -------------------------------------------------------------------------------

FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
""".split()  # row after row, ten digits in each
SIDE = 8


def digits(count, seed):
    """A data set, the same in every process: count pictures of SIDE*SIDE pixels, and their digits."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    right, down = (torch.randint(SIDE - n + 1, (count,), generator=g).tolist() for n in (5, 7))
    glyphs = [torch.tensor([[dot == "#" for dot in FONT[10 * y + d]] for y in range(7)]) for d in range(10)]
    pictures = torch.zeros(count, SIDE, SIDE, dtype=torch.bool)
    for n in range(count):
        pictures[n, down[n]:down[n] + 7, right[n]:right[n] + 5] = glyphs[n % 10]
    pictures ^= torch.rand(pictures.shape, generator=g) < 1 / 32
    return pictures.flatten(1).double(), labels


# ---- training ---------------------------------------------------------------------------


def fault(step):
    """What a test requested instead of this step."""
    if RANK != ARGS.fault_rank % WORLD:
        return
    if ARGS.fault_once and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return
    if step == ARGS.crash_at:
        raise RuntimeError(f"crash asked for at step {step}")
    while step == ARGS.hang_at:
        time.sleep(3600)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pictures, labels = digits(2000, seed=1)
    for name, value in dict(RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=29500).items():
        os.environ.setdefault(name, str(value))  # init_process_group has no defaults for a bare run
    with collective("init_process_group"):
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=ARGS.pg_timeout))
    event("pg")

    net = torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    resume = torch.tensor([resume_from(ARGS.ckpt_dir) if RANK == 0 else -1])
    with collective("broadcast"):
        dist.broadcast(resume, 0)  # rank 0 says where all resume
    step = max(int(resume), 0)
    if step:
        state = torch.load(path_of(ARGS.ckpt_dir, step), map_location="cpu")
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    with collective("DistributedDataParallel"):
        ddp = DistributedDataParallel(net)
    event("ready", step=step)
    print(f"rank {RANK} of {WORLD} begins after step {step}", flush=True)

    began_at, checkpoints_made = step, 0
    while step < ARGS.steps:
        step_began = time.monotonic()
        step += 1
        fault(step)

        batch = torch.randint(len(labels), (ARGS.global_batch,), generator=torch.Generator().manual_seed(step))
        mine = batch[RANK::WORLD]
        loss = torch.nn.functional.cross_entropy(ddp(pictures[mine]), labels[mine], reduction="sum") / ARGS.global_batch
        optimizer.zero_grad()
        with collective("all-reduce of the gradients"):
            (loss * WORLD).backward()  # DDP divides by WORLD
        optimizer.step()
        # The number of checkpoint requests of each rank is summed along with the loss: the sum
        # grows at the same step on all ranks, whichever of them got the signal.
        totals = torch.tensor([loss.item(), checkpoints_asked], dtype=torch.float64)
        with collective("all-reduce of the loss"):
            dist.all_reduce(totals)
        loss, asked = totals.tolist()

        if step == began_at + 1:
            event("first_step", step=step, **memory())
        if RANK == 0 and (step % ARGS.log_every == 0 or step == ARGS.steps):
            print(f"step {step} loss {loss:.9f} world {WORLD}", flush=True)
            event("step", step=step, loss=loss)
        if RANK == 0 and (step % ARGS.ckpt_every == 0 or step == ARGS.steps or asked > checkpoints_made):
            save(ARGS.ckpt_dir, {"step": step, "net": net.state_dict(), "optimizer": optimizer.state_dict()})
        checkpoints_made = asked
        time.sleep(max(0.0, ARGS.step_ms / 1000 - (time.monotonic() - step_began)))

    with collective("barrier"):
        dist.barrier()  # no rank ends before the last checkpoint is on disk
    if RANK == 0:
        pictures, labels = digits(500, seed=2)
        right = (net(pictures).argmax(1) == labels).double().mean()
        print(f"accuracy {right:.3f} on 500 digits it was not trained on", flush=True)
    event("done", step=step)


def leave(err, code):
    """Ends the process now: gloo's destructors may wait for peers that are gone."""
    traceback.print_exc()
    event("error", msg=str(err)[:300], code=code)
    write_error_file(err)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    ARGS = parse_args()
    event("start", top=BEGAN, ppid=os.getppid())
    try:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        event("imported")
        main()
    except PeerLost as err:
        leave(err, EXIT_PEER_LOST)
    except Exception as err:
        leave(err, EXIT_CRASHED)
