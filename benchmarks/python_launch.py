#!/usr/bin/env python3
"""How long starting takes in Python, beside PyTorch: the import, and from the launcher's start to the end of the first
all_reduce of two ranks.

    benchmarks/python_launch.py [--rounds 5]

`python -m athanor.distributed.run --nproc-per-node=2 PROGRAM` and `python -m torch.distributed.run` take turns; the time
is that of the rank that was last to have its sum. So do programs that import the package and time it. A ratio below 1 says that this library is quicker. PyTorch runs if
$ATHANOR_PEER_PYTHON (or python3) has it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("ATHANOR_BUILD", os.path.join(HERE, "..", "build")))
PROGRAM = """
import importlib, sys, time
torch = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
dist.init_process_group("tcp" if sys.argv[1] == "athanor" else "gloo")
t = torch.ones(1000)
dist.all_reduce(t)
now = time.monotonic()
assert t[0].item() == 2
print(f"reduced {now}\\n", end="", flush=True)
dist.destroy_process_group()
"""

IMPORT = """
import importlib, sys, time
begin = time.perf_counter()
importlib.import_module(sys.argv[1])
print(time.perf_counter() - begin)
"""


def environment_of(name: str) -> dict:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if name == "athanor":
        environment["PYTHONPATH"] = os.path.join(BUILD, "python")
    return environment


def import_once(python: str, name: str) -> float:
    """Seconds that the import takes in a new process."""
    return float(subprocess.run([python, "-c", IMPORT, name], env=environment_of(name), capture_output=True, text=True,
                                timeout=120, check=True).stdout)


def launch_once(python: str, name: str, program: str) -> float:
    """Seconds of one launch."""
    begin = time.monotonic()
    done = subprocess.run(
        [python, "-m", f"{name}.distributed.run", "--nproc-per-node=2", program, name],
        env=environment_of(name), capture_output=True, text=True, timeout=120, check=True,
    )
    ends = [float(line.split()[-1]) for line in done.stdout.splitlines() if "reduced" in line]
    if len(ends) != 2:
        raise RuntimeError(f"{name}: expected two ranks, got {done.stdout!r}")
    return max(ends) - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    own = os.path.join(BUILD, "python-env", "bin", "python")
    peer = os.environ.get("ATHANOR_PEER_PYTHON", "python3")
    has_torch = subprocess.run([peer, "-c", "import torch"], capture_output=True).returncode == 0
    sides = [("athanor", own)] + ([("torch", peer)] if has_torch else [])
    imports: dict = {name: [] for name, _ in sides}
    launches: dict = {name: [] for name, _ in sides}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.py")
        with open(program, "w") as file:
            file.write(PROGRAM)
        for _ in range(args.rounds):
            for name, python in sides:
                imports[name].append(import_once(python, name))
                launches[name].append(launch_once(python, name, program))
    for what, times in (("import", imports), ("launch", launches)):
        for name, _ in sides:
            print(f"{what} {name:8} {statistics.median(times[name]):6.3f} s   "
                  f"({min(times[name]):.3f} to {max(times[name]):.3f})")
        if has_torch:
            print(f"{what} ratio    {statistics.median(times['athanor']) / statistics.median(times['torch']):6.3f}")
    if not has_torch:
        print("SKIP: no Python with PyTorch", file=sys.stderr)


if __name__ == "__main__":
    main()
