"""Training steps with spinning and with sleeping OpenMP threads, on a quiet machine and beside two busy processes.

Run: python benchmarks/threads.py [--seconds 6] [--repeats 2]. Prints steps as a ratio to those with OpenMP's default
on the same machine in the same run, for short steps (a small CNN, 32 images) and long ones (256 images, wide layers).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

CHOICES: dict[str, dict[str, str]] = {
    "default": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "GOMP_SPINCOUNT=0": {"GOMP_SPINCOUNT": "0"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
}
KNOWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
TRAIN = """
import sys, time
import torch
from torch import nn
kind, seconds = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(2)
batch, width = (32, 16) if kind == "short" else (256, 64)
model = nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3), nn.ReLU(),
                      nn.MaxPool2d(2), nn.Flatten(), nn.Linear(50 * width, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
images, labels = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
step()
steps, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    step()
    steps += 1
print(steps / seconds)
"""
BUSY = "while True: pass"


def steps_per_second(kind: str, choice: dict[str, str], seconds: float) -> float:
    environment = {name: value for name, value in os.environ.items() if name not in KNOWN} | choice
    command = [sys.executable, "-c", TRAIN, kind, str(seconds)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--seconds", type=float, default=6.0)
    reader.add_argument("--repeats", type=int, default=2)
    asked = reader.parse_args()
    print(f"{'machine':<8} {'steps':<6} {'setting':<26} steps/s   of the default's")
    for machine, others in (("quiet", 0), ("busy", 2)):
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(others)]
        try:
            for kind in ("short", "long"):
                found = {
                    name: statistics.median(steps_per_second(kind, choice, asked.seconds) for _ in range(asked.repeats))
                    for name, choice in CHOICES.items()
                }
                for name, rate in found.items():
                    print(f"{machine:<8} {kind:<6} {name:<26} {rate:8.2f}  {rate / found['default']:.2f} x", flush=True)
        finally:
            for process in busy:
                process.kill()


if __name__ == "__main__":
    main()
