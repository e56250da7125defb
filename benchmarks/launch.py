#!/usr/bin/env python3
"""How long starting takes, beside PyTorch: the import in Python, and jobs of 2 and 8 ranks that form a group and reduce
once, from the launcher's start to the last rank's sum and to the launcher's end.

    benchmarks/launch.py [--rounds 5] [--ranks 2,8]

`athanor run` with a C++ program, `python -m athanor.distributed.run` and `python -m torch.distributed.run` (which looks
at its workers every 0.1 s, and every 0.01 s at its fastest) take turns; so do programs that import the package and time
it. A ratio below 1 says that this library is quicker than the quickest PyTorch of the interpreters that
ATHANOR_PEER_PYTHON names (colon-separated; otherwise python3).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from peer_pythons import pythons_with

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
assert t[0].item() == dist.get_world_size()
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


def launch_once(command: list, name: str, ranks: int, done: str) -> tuple:
    """Seconds to the last rank's sum (NaN if the program does not tell), and to the launcher's end."""
    begin = time.monotonic()
    ended = subprocess.run(command, env=environment_of(name), capture_output=True, text=True, timeout=300, check=True)
    whole = time.monotonic() - begin
    lines = [line for line in ended.stdout.splitlines() if done in line]
    if len(lines) != ranks:
        raise RuntimeError(f"{name}: expected {ranks} ranks, got {ended.stdout!r}")
    return (max(float(line.split()[-1]) for line in lines) - begin if done == "reduced" else float("nan")), whole


def launches(own: str, peers: dict, program: str, ranks: int) -> list:
    """(name, package, command, what each rank prints) of each way to start `ranks` ranks."""
    ours = ["--nproc-per-node", str(ranks), program, "athanor"]
    result = [("athanor run, C++", "athanor", [os.path.join(BUILD, "bin", "athanor"), "run", "--nproc-per-node", str(ranks),
                                               os.path.join(BUILD, "bin", "launch_worker"), "reduce"], "sum"),
              ("athanor, Python", "athanor", [own, "-m", "athanor.distributed.run", *ours], "reduced")]
    for version, python in peers.items():
        torchrun = [python, "-m", "torch.distributed.run"]
        theirs = [f"--nproc-per-node={ranks}", program, "torch"]
        result += [(f"torchrun {version}", "torch", torchrun + theirs, "reduced"),
                   (f"torchrun {version}, 0.01 s", "torch", torchrun + ["--monitor-interval=0.01"] + theirs, "reduced")]
    return result


def show(what: str, times: dict) -> None:
    """A line per side with the median, the range, and the ratio to the quickest side of PyTorch."""
    peers = [statistics.median(t) for (_, package), t in times.items() if package == "torch"]
    for (name, package), values in times.items():
        middle = statistics.median(values)
        ratio = f"   {middle / min(peers):6.3f} of PyTorch's" if peers and package == "athanor" else ""
        print(f"{what:22} {name:24} {middle:7.3f} s   ({min(values):.3f} to {max(values):.3f}){ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", default="2,8", help="numbers of ranks, by commas")
    args = parser.parse_args()
    own = os.path.join(BUILD, "python-env", "bin", "python")
    peers = pythons_with("torch", "python3")
    if not peers:
        print("SKIP: no Python with PyTorch", file=sys.stderr)
    imports: dict = {}
    for _ in range(args.rounds):
        for name, package, python in [("athanor", "athanor", own), *((f"torch {v}", "torch", p) for v, p in peers.items())]:
            imports.setdefault((name, package), []).append(import_once(python, package))
    show("import", imports)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.py")
        with open(program, "w") as file:
            file.write(PROGRAM)
        for ranks in map(int, args.ranks.split(",")):
            sums: dict = {}
            wholes: dict = {}
            for _ in range(args.rounds):
                for name, package, command, done in launches(own, peers, program, ranks):
                    reduced, whole = launch_once(command, package, ranks, done)
                    wholes.setdefault((name, package), []).append(whole)
                    if reduced == reduced:
                        sums.setdefault((name, package), []).append(reduced)
            show(f"{ranks} ranks, to the sum", sums)
            show(f"{ranks} ranks, to the end", wholes)


if __name__ == "__main__":
    main()
