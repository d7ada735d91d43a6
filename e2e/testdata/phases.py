"""A healthy synchronous training of plain sockets with evaluations on rank 0, checkpoints, late data, and pauses of up to PAUSE seconds."""

import os
import random
import time

from peers import all_reduce, rank

pause = float(os.environ.get("PAUSE", "300"))
shared = random.Random(7)  # all ranks draw the same


def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def evaluate(seconds):
    if rank == 0:
        work(seconds)


def save(seconds):
    until = time.monotonic() + seconds
    with open(f"state.{rank}", "w") as file:
        while time.monotonic() < until:
            file.write("x" * 4096)
            file.flush()
            time.sleep(0.05)


def load(seconds):
    time.sleep(seconds)


due = {}
every = {"evaluate": 60, "save": 45, "load": 30, "rest": 900}
step = 0
begun = time.monotonic()
while True:
    step += 1
    work(0.002)
    time.sleep(0.04)
    now = all_reduce(time.monotonic() - begun if rank == 0 else 0.0)
    print(f"step {step} loss {1 / step:.6f}")
    for what, period in every.items():
        if now < due.setdefault(what, period):
            continue
        due[what] = now + period * shared.uniform(0.8, 1.2)
        if what == "evaluate":
            evaluate(6 * shared.lognormvariate(0, 0.05))
        elif what == "save":
            save(4 * shared.lognormvariate(0, 0.3))
        elif what == "load":
            load(min(60, 3 * shared.lognormvariate(0, 0.7)))
        else:
            load(shared.uniform(0.2, 1) * pause)
