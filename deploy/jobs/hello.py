"""Counts for ten minutes, as if it trained. Each rank says who it is."""
import os
import time

rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {world}", flush=True)
for step in range(600):
    time.sleep(1)
    print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
