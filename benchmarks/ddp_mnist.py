#!/usr/bin/env python3
"""Data-parallel training of PyTorch's MNIST example: several ranks against one, and against PyTorch's DDP (gloo).

    benchmarks/ddp_mnist.py [--ranks 2] [--batch 64] [--rounds 3]

Batch and threads (1) are per rank. The programs take turns; ratios are of the medians of their rounds. PyTorch runs if
$ATHANOR_PEER_PYTHON (or python3) has it, with malloc told to keep its memory, which gives it 10 to 30 % here.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ours(*flags: str) -> dict:
    program = os.path.join(HERE, "..", "build", "bin", "bench_ddp")
    return json.loads(subprocess.run([program, *flags], check=True, capture_output=True, text=True).stdout)


def torchs(python: str, ranks: int, batch: int) -> dict:
    environment = {**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [subprocess.Popen([python, os.path.join(HERE, "peers", "torch_ddp.py"), str(batch)],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                env={**environment, "RANK": str(rank)}) for rank in range(ranks)]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError("PyTorch's ranks failed")
    return json.loads(outputs[0].splitlines()[-1])


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch.distributed"], capture_output=True, check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    python = os.environ.get("ATHANOR_PEER_PYTHON", "python3")
    batch, many = ("--batch", str(args.batch)), ("--ranks", str(args.ranks))
    programs = {
        "one rank": lambda: ours(*batch),
        "ranks side by side, nothing exchanged": lambda: ours(*batch, *many, "--plain"),
        "DistributedDataParallel": lambda: ours(*batch, *many),
        "  reduced while backward runs": lambda: ours(*batch, *many, "--overlap"),
        "  reduced at its end": lambda: ours(*batch, *many, "--no-overlap"),
    }
    if has_torch(python):
        programs["PyTorch's DistributedDataParallel"] = lambda: torchs(python, args.ranks, args.batch)
    else:
        print(f"{python} has no torch.distributed: PyTorch is left out", file=sys.stderr)
    rates = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, program in programs.items():
            rates[name].append(program()["images_per_s"])
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:40} {medians[name]:9.0f} images/s  {medians[name] / medians['one rank']:5.2f} x one rank  "
              f"({min(values):.0f} to {max(values):.0f})")
    if "PyTorch's DistributedDataParallel" in medians:
        ratio = medians["DistributedDataParallel"] / medians["PyTorch's DistributedDataParallel"]
        print(f"DistributedDataParallel is {ratio:.2f} times PyTorch's")


if __name__ == "__main__":
    main()
