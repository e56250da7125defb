#!/usr/bin/env python3
"""Data-parallel training of PyTorch's MNIST example: several ranks against one, against as many ranks that exchange
nothing, which is the most there is to reach, and against PyTorch's DDP (gloo).

    benchmarks/ddp_mnist.py [--ranks 2] [--batch 64] [--rounds 5]

Batch and threads (1) are per rank. The programs take turns. Rates are medians of the rounds; a ratio to another side is
the median of the ratios within each round. Each PyTorch of the interpreters that ATHANOR_PEER_PYTHON names
(colon-separated; otherwise python3) runs in several settings, a side each, of which the fastest counts. Its malloc is
told to keep its memory, which gives it 10 to 30 % here.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys

from peer_pythons import pythons_with

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "peers", "torch_ddp.py")
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
OURS, LIMIT = "DistributedDataParallel", "ranks side by side, nothing exchanged"
PEER_TIMEOUT_S = 300


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ours(build: str, *flags: str) -> float:
    program = os.path.join(build, "bin", "bench_ddp")
    return json.loads(subprocess.run([program, *flags], check=True, capture_output=True, text=True).stdout)["images_per_s"]


def torchs(python: str, ranks: int, batch: int, settings: list) -> float:
    environment = {**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [subprocess.Popen([python, PEER, str(batch), *settings], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                text=True, env={**environment, "RANK": str(rank)}) for rank in range(ranks)]
    try:
        outputs = [process.communicate(timeout=PEER_TIMEOUT_S)[0] for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in started):
        raise RuntimeError(f"PyTorch's ranks failed with {settings or 'no settings'}")
    return json.loads(outputs[0].splitlines()[-1])["images_per_s"]


def settings_of(sgd: list) -> list:
    """Ways to run PyTorch's side: as it comes, each means of its own, and all of them with either size of bucket."""
    best = ["channels_last", "static_graph", "gradient_as_bucket_view"]
    ways = [[], ["gradient_as_bucket_view"], ["channels_last"], ["static_graph"], ["bucket_cap_mb=1"],
            best + ["bucket_cap_mb=1"], best + ["bucket_cap_mb=25"]]
    return ways + [way + [kind] for kind in sgd for way in ([], best + ["bucket_cap_mb=1"])]


def peers(ranks: int, batch: int) -> dict:
    """Name -> what runs that side once."""
    sides = {}
    for version, python in pythons_with("torch.distributed", "python3").items():
        sgd = json.loads(subprocess.run([python, PEER, "--sgd"], check=True, capture_output=True, text=True).stdout)
        for way in settings_of(sgd):
            sides[f"PyTorch {version} {', '.join(way) or 'plain'}"] = \
                lambda python=python, way=way: torchs(python, ranks, batch, way)
    return sides


def ratio(rates: dict, side: str, other: str) -> float:
    """The median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(rates[side], rates[other]))


def report(rates: dict) -> list:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    width = max(map(len, rates))
    lines = [f"{name:{width}} {medians[name]:9.0f} images/s  {medians[name] / medians['one rank']:5.2f} x one rank  "
             f"({min(values):.0f} to {max(values):.0f})" for name, values in rates.items()]
    lines.append(f"{OURS} reaches {ratio(rates, OURS, LIMIT):.2f} of '{LIMIT}' of the same round")
    torch = [name for name in rates if name.startswith("PyTorch")]
    if torch:
        fastest = max(torch, key=medians.get)
        lines.append(f"{OURS} is {ratio(rates, OURS, fastest):.2f} times the fastest of PyTorch's: {fastest}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    args = parser.parse_args()
    batch, many = ("--batch", str(args.batch)), ("--ranks", str(args.ranks))
    programs = {
        "one rank": lambda: ours(args.build, *batch),
        LIMIT: lambda: ours(args.build, *batch, *many, "--plain"),
        OURS: lambda: ours(args.build, *batch, *many),
        "  reduced while backward runs": lambda: ours(args.build, *batch, *many, "--overlap"),
        "  reduced at its end": lambda: ours(args.build, *batch, *many, "--no-overlap"),
        **peers(args.ranks, args.batch),
    }
    rates = {name: [] for name in programs}
    for turn in range(args.rounds):
        for name, program in programs.items():
            rates[name].append(program())
        print(f"# round {turn + 1} of {args.rounds} done", file=sys.stderr)
    print("\n".join(report(rates)))


if __name__ == "__main__":
    main()
