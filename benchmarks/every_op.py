#!/usr/bin/env python3
"""Every op that a Python program calls often, forward and backward, beside PyTorch: where is this library slower?

    ATHANOR_PEER_PYTHON=/path/to/python benchmarks/every_op.py [--filter 'pool|conv'] [--rounds 3] [--worst 40]

One thread; operands of about a million elements unless the row's name says otherwise. Both sides run the same rows
(benchmarks/every_op_rows.py) in processes of their own and take turns. What counts is the processor time of the thread,
the best of all turns: a busy machine does not disturb it, sleeping threads do not count, and neither does what the
system does on other processors. A ratio above 1 is ours. For the rows that decisions hang on see `make bench`.
"""

import argparse
import json
import math
import os
import re
import sys

from peer_pythons import named_pythons
from sides import Side

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = os.path.join(HERE, "every_op_rows.py")


def start(module: str, python: str, build: str) -> Side:
    paths = [os.path.join(build, "python")] if module == "athanor" else []
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    return Side(module, [python, ROWS, module], 1, environment, module != "athanor", 120)


def measure(sides: list, rows: list, rounds: int) -> dict:
    """Row -> the least processor time of each side, None where it cannot."""
    best = {row: [None] * len(sides) for row in rows}
    for row in rows:
        for _ in range(rounds):
            for i, side in enumerate(sides):
                side.send(f"run {row}")
                answer = side.read()
                if "error" in answer:
                    print(f"{row}: {side.name}: {answer['error']}", file=sys.stderr)
                    continue
                least = best[row][i]
                best[row][i] = answer["seconds"] if least is None else min(least, answer["seconds"])
    return best


def report(best: dict, worst: int) -> None:
    both = sorted((t / a, row, a, t) for row, (a, t) in best.items() if a and t)
    if not both:
        raise SystemExit("no row ran on both sides")
    mean = math.exp(sum(math.log(ratio) for ratio, *_ in both) / len(both))
    slower = sum(ratio < 1 for ratio, *_ in both)
    print(f"{'row':32}{'ours':>12}{'PyTorch':>12}{'ratio':>8}")
    for ratio, row, ours, theirs in both[:worst]:
        print(f"{row:32}{ours * 1e6:9.0f} us{theirs * 1e6:9.0f} us{ratio:8.2f}")
    print(f"{len(both)} rows: {mean:.2f} times PyTorch's speed in the geometric mean; {slower} are slower")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only rows that match this regular expression")
    parser.add_argument("--rounds", type=int, default=3, help="turns per row")
    parser.add_argument("--worst", type=int, default=40, help="rows to show, slowest against PyTorch first")
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--json", help="also write the seconds of all rows to this file")
    args = parser.parse_args()
    peer = named_pythons(sys.executable)[0]
    ours = os.path.join(args.build, "python-env", "bin", "python3")
    sides = [start("athanor", ours if os.path.exists(ours) else sys.executable, args.build),
             start("torch", peer, args.build)]
    try:
        print(f"PyTorch {sides[1].version}, one thread")
        rows = [row for row in sides[0].listed if re.search(args.filter, row)]
        best = measure(sides, rows, args.rounds)
    finally:
        for side in sides:
            side.close()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(best, file, indent=1)
    report(best, args.worst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
