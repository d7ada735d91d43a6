#!/usr/bin/env python3
"""Elastic data-parallel training of a small digit classifier, in plain Python.

Softmax regression on 8x8 pictures of the digits 0-9, drawn by this script (a 5x7 font,
shifted and with noise; the real MNIST would need a download). The ranks share the work
of each step and add up their gradients over TCP, as a real job does over NCCL.

It does not depend on a launcher: it reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, so it
runs bare (a world of one), under torchrun and under eltrain.

What makes it elastic, and what your own script needs:
  * The global batch is fixed and split over however many ranks there are, so step k
    computes the same thing in every world.
  * It resumes from the newest checkpoint. Rank 0 picks it and sends it to all.
  * A lost peer ends the process at once, with its own exit code (17). There is no
    repair from within: the launcher forms the next world.
  * SIGUSR1 requests a checkpoint. All ranks agree on the step after which it is taken.

Sums are made of integers (see ONE). Integer addition, unlike that of floats, has the same
result in every order, so the loss at step k is the same to the last bit for any world
size and any number of restarts. A recovery can thus be checked, not only watched.
"""
import time

BEGAN = time.monotonic()

import os
import signal

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))

# Until a handler is set SIGUSR1 kills the process, so this comes before the slower imports.
checkpoints_asked = 0


def ask_checkpoint(*_):
    global checkpoints_asked
    checkpoints_asked += 1


signal.signal(signal.SIGUSR1, ask_checkpoint)

import argparse
import json
import math
import random
import socket
import struct
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
    p.add_argument("--progress", action="store_true", help="also say the steps, and how many there are, to the file in ELTRAIN_PROGRESS")
    p.add_argument("--events", default=env("TRAIN_EVENTS", ""), help="write times here, JSON lines")
    faults = p.add_argument_group("faults to try a launcher with")
    faults.add_argument("--crash-at", type=int, metavar="STEP", help="raise an error there, in every world")
    faults.add_argument("--hang-at", type=int, metavar="STEP", help="stop there for ever")
    faults.add_argument("--fault-rank", type=int, default=-1, help="rank that has the fault; -1: the last")
    faults.add_argument("--fault-once", action="store_true", help="only while TORCHELASTIC_RESTART_COUNT is 0")
    return p.parse_args()


# ---- what others read: events and the error file ---------------------------------------


def progress(**said):
    path = os.environ.get("ELTRAIN_PROGRESS")
    if ARGS.progress and path:
        with open(path, "a") as to:
            to.write(json.dumps(said) + "\n")


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
    """Tells the launcher why, in the JSON that PyTorch's @record decorator writes."""
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


# ---- the group: a star around rank 0 ----------------------------------------------------


class PeerLost(Exception):
    """A collective failed: another rank died, is silent for too long, or never came."""


# A rank left over from an earlier world must not join this one, so each connection opens
# with the world's name.
WORLD_NAME = "/".join([os.environ.get("TORCHELASTIC_RUN_ID", ""),
                       os.environ.get("ELTRAIN_GENERATION", ""), str(WORLD)])
GREETING_WAIT = 2.0   # s; a stranger on the port holds the others up no longer than this
CONNECT_RETRY = 0.02  # s; rank 0 may begin to listen after we first try
FRAME_MAX = 64 << 20  # bytes; a length beyond this is not one of our messages


def send(sock, body):
    sock.sendall(struct.pack("!I", len(body)) + body)


def receive(sock):
    def exactly(n):
        got = bytearray()
        while len(got) < n:
            part = sock.recv(n - len(got))
            if not part:
                raise ConnectionError("peer closed the connection")
            got += part
        return bytes(got)

    (length,) = struct.unpack("!I", exactly(4))
    if length > FRAME_MAX:
        raise ConnectionError("peer does not speak our protocol")
    return exactly(length)


class Group:
    """The ranks of one world. Every wait ends within timeout seconds."""

    def __init__(self, timeout):
        self.timeout = timeout
        self.peers = {}  # on rank 0: every other rank's socket; elsewhere: rank 0's alone
        addr = os.environ.get("MASTER_ADDR", "127.0.0.1")
        port = int(os.environ.get("MASTER_PORT", 29500))
        if WORLD == 1:
            return
        try:
            self._wait_for_all(port) if RANK == 0 else self._join(addr, port)
        except OSError as err:
            raise PeerLost(f"world of {WORLD} did not form: {err}") from err
        for sock in self.peers.values():
            sock.settimeout(timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _wait_for_all(self, port):
        deadline = time.monotonic() + self.timeout
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("", port))
            server.listen(WORLD)
            while len(self.peers) < WORLD - 1:
                server.settimeout(max(0.001, deadline - time.monotonic()))
                sock, _ = server.accept()
                rank = self._greeted(sock)
                if rank is None:
                    sock.close()
                    continue
                if rank in self.peers:  # it tried again: the connection it gave up is dead
                    self.peers[rank].close()
                self.peers[rank] = sock
        for sock in self.peers.values():
            send(sock, b"go")

    @staticmethod
    def _greeted(sock):
        """The rank at the other end, or None for a stranger or one of another world."""
        try:
            sock.settimeout(GREETING_WAIT)
            hello = json.loads(receive(sock))
            rank = int(hello["rank"])
            return rank if hello["world"] == WORLD_NAME and 0 < rank < WORLD else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _join(self, addr, port):
        deadline = time.monotonic() + self.timeout
        while True:
            sock = None
            try:
                left = max(0.001, deadline - time.monotonic())
                sock = socket.create_connection((addr, port), timeout=min(left, 5))
                send(sock, json.dumps({"rank": RANK, "world": WORLD_NAME}).encode())
                sock.settimeout(left)
                if receive(sock) == b"go":
                    self.peers[0] = sock
                    return
                raise ConnectionError("rank 0 gave an unknown answer")
            except OSError:
                if sock:
                    sock.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(CONNECT_RETRY)

    def sum(self, numbers):
        """Element by element sum of every rank's list of int64, the same list on each rank."""
        layout = f"!{len(numbers)}q"
        try:
            if RANK != 0:
                send(self.peers[0], struct.pack(layout, *numbers))
                return list(struct.unpack(layout, receive(self.peers[0])))
            for sock in self.peers.values():
                numbers = [a + b for a, b in zip(numbers, struct.unpack(layout, receive(sock)))]
            for sock in self.peers.values():
                send(sock, struct.pack(layout, *numbers))
            return numbers
        except OSError as err:
            raise PeerLost(f"all-reduce: {err}") from err

    def broadcast(self, body):
        """Rank 0's bytes, on every rank."""
        try:
            if RANK != 0:
                return receive(self.peers[0])
            for sock in self.peers.values():
                send(sock, body)
            return body
        except OSError as err:
            raise PeerLost(f"broadcast: {err}") from err


# ---- checkpoints ------------------------------------------------------------------------

KEEP = 2  # the one before the newest stays: a fall-back if the disk garbles the newest


def checkpoints(directory):
    """Complete checkpoints, newest first. Unfinished ones have another ending."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted((os.path.join(directory, n) for n in names
                   if n.startswith("step-") and n.endswith(".json")), reverse=True)


def save(directory, state):
    """Writes beside, flushes to disk, then renames: a reader sees all of it or nothing."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"step-{state['step']:08d}.json")
    tmp = f"{path}.tmp.{os.getpid()}"
    with open(tmp, "w") as f:
        json.dump(state, f)
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
        os.unlink(old)
    event("ckpt", step=state["step"])


def load(directory):
    """The newest checkpoint that can be read, or None; the one of ELTRAIN_RESUME_STEP if that is set."""
    wanted = os.environ.get("ELTRAIN_RESUME_STEP")
    if wanted:
        wanted = os.path.join(directory, f"step-{int(wanted):08d}.json")
        for later in [path for path in checkpoints(directory) if path > wanted]:
            os.unlink(later)  # of the course that was given up: no later start may take it for the newest
        with open(wanted) as f:
            return json.load(f)
    for path in checkpoints(directory):
        try:
            with open(path) as f:
                return json.load(f)
        except ValueError as err:
            print(f"skipped {path}: {err}", file=sys.stderr, flush=True)
    return None


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
PIXELS = SIDE * SIDE


def draw(digit, rng):
    """The numbers of the lit pixels: the digit, shifted, with 1 pixel in 32 flipped."""
    right, down = rng.randrange(SIDE - 5 + 1), rng.randrange(SIDE - 7 + 1)
    picture = sum(1 << ((y + down) * SIDE + x + right)
                  for y in range(7) for x, dot in enumerate(FONT[10 * y + digit]) if dot == "#")
    noise = (1 << PIXELS) - 1
    for _ in range(5):  # each AND with random bits halves what is left: 1 in 32 in the end
        noise &= rng.getrandbits(PIXELS)
    picture ^= noise
    return [i for i in range(PIXELS) if picture >> i & 1]


def digits(count, seed):
    """A data set, the same in every process: (digit, lit pixels), count times."""
    rng = random.Random(seed)
    return [(n % 10, draw(n % 10, rng)) for n in range(count)]


# ---- model ------------------------------------------------------------------------------

CLASSES = 10
ROW = PIXELS + 1    # a class's weights: one a pixel, and the bias
ONE = 1 << 40       # 1.0 in the fixed-point integers that gradients and losses are added up in
LEARNING_RATE, MOMENTUM = 0.1, 0.9


def rows(weights):
    return [weights[c * ROW:(c + 1) * ROW] for c in range(CLASSES)]


def scores(rows, lit):
    return [math.fsum([row[PIXELS], *(row[i] for i in lit)]) for row in rows]


def loss_and_gradient(weights, samples):
    """Cross-entropy of the samples and its gradient, both summed, in units of 1/ONE."""
    loss, grad, by_class = 0, [0] * len(weights), rows(weights)
    for digit, lit in samples:
        s = scores(by_class, lit)
        top = max(s)
        e = [math.exp(v - top) for v in s]
        total = math.fsum(e)
        loss += round((math.log(total) + top - s[digit]) * ONE)
        for c in range(CLASSES):
            slope = round((e[c] / total - (c == digit)) * ONE)
            grad[c * ROW + PIXELS] += slope
            for i in lit:  # pixels are 0 or 1, so the slope is the gradient of each lit one
                grad[c * ROW + i] += slope
    return loss, grad


def accuracy(weights, samples):
    by_class = rows(weights)
    right = 0
    for digit, lit in samples:
        s = scores(by_class, lit)
        right += s[digit] == max(s)
    return right / len(samples)


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
    event("start", top=BEGAN, ppid=os.getppid())
    train_set = digits(2000, seed=1)
    event("imported")
    group = Group(ARGS.pg_timeout)
    event("pg")

    state = {"step": 0, "weights": [0.0] * (CLASSES * ROW), "momentum": [0.0] * (CLASSES * ROW)}
    if RANK == 0:
        state = load(ARGS.ckpt_dir) or state
    state = json.loads(group.broadcast(json.dumps(state).encode()))  # floats survive JSON exactly
    step, weights, momentum = state["step"], state["weights"], state["momentum"]
    event("ready", step=step)
    print(f"rank {RANK} of {WORLD} begins after step {step}", flush=True)

    began_at, checkpoints_made = step, 0
    while step < ARGS.steps:
        step_began = time.monotonic()
        step += 1
        fault(step)

        batch = random.Random(step).choices(train_set, k=ARGS.global_batch)
        loss, grad = loss_and_gradient(weights, batch[RANK::WORLD])
        # The number of checkpoint requests of each rank is summed along with the rest: the sum
        # grows at the same step on all ranks, whichever of them got the signal.
        asked, loss, *grad = group.sum([checkpoints_asked, loss, *grad])
        for k, g in enumerate(grad):
            momentum[k] = MOMENTUM * momentum[k] + g / ONE / ARGS.global_batch
            weights[k] -= LEARNING_RATE * momentum[k]

        if step == began_at + 1:
            event("first_step", step=step, **memory())
        if RANK == 0 and (step % ARGS.log_every == 0 or step == ARGS.steps):
            loss = loss / ONE / ARGS.global_batch
            print(f"step {step} loss {loss:.9f} world {WORLD}", flush=True)
            event("step", step=step, loss=loss)
            progress(step=step, total=ARGS.steps, loss=loss)
        if RANK == 0 and (step % ARGS.ckpt_every == 0 or step == ARGS.steps or asked > checkpoints_made):
            save(ARGS.ckpt_dir, {"step": step, "weights": weights, "momentum": momentum})
        checkpoints_made = asked
        time.sleep(max(0.0, ARGS.step_ms / 1000 - (time.monotonic() - step_began)))

    group.sum([0])  # no rank ends before the last checkpoint is on disk
    if RANK == 0:
        print(f"accuracy {accuracy(weights, digits(500, seed=2)):.3f} on 500 digits it was not trained on", flush=True)
    event("done", step=step)


def leave(err, code):
    """Ends the process now: the usual clean-up could wait for peers that are gone."""
    traceback.print_exc()
    event("error", msg=str(err)[:300], code=code)
    write_error_file(err)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    ARGS = parse_args()
    try:
        main()
    except PeerLost as err:
        leave(err, EXIT_PEER_LOST)
    except Exception as err:
        leave(err, EXIT_CRASHED)
