#!/usr/bin/env python3
"""Debian's torchrun (PyTorch 1.13.1) made to work, so that it can be measured.

Two things are changed, nothing else:
  * Std.from_str iterates over an IntFlag. Since Python 3.11 that leaves out 0 and 3, so it
    returns None for them and torchrun ends with an AttributeError before it does anything.
  * KEEP_ALIVE=SECONDSxCOUNT sets after what silence a node counts as dead (5x3 otherwise).
    Newer PyTorch has it as --rdzv-conf keep_alive_interval=S,keep_alive_max_attempt=N.
"""
import datetime
import os

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.rendezvous import dynamic_rendezvous


def from_str(text):
    if "," in text or ":" in text:
        pairs = (part.split(":") for part in text.split(","))
        return {int(rank): api.Std(int(streams)) for rank, streams in pairs}
    return api.Std(int(text))


def set_keep_alive(interval, attempts):
    original = dynamic_rendezvous.RendezvousSettings

    def settings(*args, **kwargs):
        kwargs.update(keep_alive_interval=datetime.timedelta(seconds=interval), keep_alive_max_attempt=attempts)
        return original(*args, **kwargs)

    dynamic_rendezvous.RendezvousSettings = settings


api.Std.from_str = staticmethod(from_str)
if os.environ.get("KEEP_ALIVE"):
    interval, attempts = os.environ["KEEP_ALIVE"].split("x")
    set_keep_alive(float(interval), int(attempts))

if __name__ == "__main__":
    run.main()
