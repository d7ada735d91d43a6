"""A healthy synchronous training of plain sockets with evaluations on rank 0, checkpoints, late data, and pauses of up to PAUSE seconds."""

import os
import random
import socket
import struct
import sys
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
pause = float(os.environ.get("PAUSE", "300"))
shared = random.Random(7)  # all ranks draw the same


def recv_all(peer):
    data = b""
    while len(data) < 8:
        part = peer.recv(8 - len(data))
        if not part:
            sys.exit(1)
        data += part
    return struct.unpack("d", data)[0]


def all_reduce(value):
    if rank == 0:
        total = value + sum(recv_all(peer) for peer in peers)
        for peer in peers:
            peer.sendall(struct.pack("d", total))
        return total
    peers[0].sendall(struct.pack("d", value))
    return recv_all(peers[0])


def connect():
    if rank == 0:
        server = socket.create_server(address, reuse_port=True)
        return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except OSError:
            time.sleep(0.05)


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


peers = connect()
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
