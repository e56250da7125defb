#!/usr/bin/env python3
"""Memory of training steps beside PyTorch's: the most bytes that tensors took at once, and the most memory that the
process had resident, both with and without what it had before (PyTorch's libraries are large). Every row runs in a
process of its own. Fails where the tensors of a ResNet's training step take more than PyTorch's, or its process resides
in more than 1.1 times as much; inference may trade memory (weights in a second form) for speed.

    benchmarks/memory.py --filter resnet --threads 2
"""

import argparse
import os
import re
import sys

import sides as peer_programs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS = r"^(resnet50\.step|resnet18\.step|resnet50\.forward/b16|mnist\.conv/b64|gpt\.step/|lstm\.step|attention\.step)"
MB = 1e6


def status_of(pid: int, field: str) -> float:
    """Bytes that a field of /proc/PID/status names."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(float(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def measure(command: list, environment: dict, threads: int, row: str, timeout: float):
    """(live, resident, resident beyond the start) in bytes."""
    side = peer_programs.Side("side", command, threads, environment, True, timeout)
    try:
        before = status_of(side.process.pid, "VmRSS")
        side.send(f"run {row} 4 0")
        answer = side.read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        resident = status_of(side.process.pid, "VmHWM")
        side.send(f"memory {row} 1")
        answer = side.read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["live"], resident, resident - before
    finally:
        side.close()


def rows_of(command: list, environment: dict, threads: int, timeout: float) -> list:
    side = peer_programs.Side("side", command, threads, environment, True, timeout)
    side.close()
    return sorted(side.rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default=ROWS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], help="a Python interpreter that has PyTorch")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--timeout", type=float, default=300)
    arguments = parser.parse_args()
    ours = [os.path.join(arguments.build, "bin", "athanor_bench"), str(arguments.threads)]
    peers = {}
    for torch in peer_programs.find_torches(arguments.peer):
        for tuning, environment in torch.tunings("both").items():
            command = [torch.python, os.path.join(peer_programs.PEERS, "torch_peer.py"), str(arguments.threads)]
            peers[f"torch {torch.short_version} {tuning}"] = (command, environment)
    listed = {name: rows_of(*how, arguments.threads, arguments.timeout) for name, how in peers.items()}
    print(f"{'row':36}{'side':38}{'live MB':>10}{'resident MB':>13}{'beyond start':>14}")
    failed = []
    ours_listed = rows_of(ours, {}, arguments.threads, arguments.timeout)
    for row in [r for r in ours_listed if "@" not in r and re.search(arguments.filter, r)]:
        figures = {"athanor": measure(ours, {}, arguments.threads, row, arguments.timeout)}
        for name, how in peers.items():
            for way in [r for r in listed[name] if r.split("@")[0] == row]:
                try:
                    figures[name + way[len(row):]] = measure(*how, arguments.threads, way, arguments.timeout)
                except RuntimeError as error:
                    print(f"skipped: {way} of {name}: {error}")
        for name, numbers in figures.items():
            print(f"{row:36}{name:38}{numbers[0] / MB:10.1f}{numbers[1] / MB:13.1f}{numbers[2] / MB:14.1f}", flush=True)
        if len(figures) == 1:
            print(f"skipped: {row} has no peer")
            continue
        least = [min(figures[name][i] for name in figures if name != "athanor") for i in range(3)]
        live, resident, beyond = (figures["athanor"][i] / least[i] for i in range(3))
        print(f"{row:36}ratio to the least: live {live:.2f}, resident {resident:.2f}, beyond the start {beyond:.2f}")
        if re.match(r"resnet\d+\.step", row) and (live > 1 or resident > 1.1):
            failed.append(row)
    if failed:
        print("more memory than PyTorch: " + ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
