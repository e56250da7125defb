#!/usr/bin/env python3
"""Runs Athanor and its peers side by side: the same rows, the same threads, in turns, so that a busy moment of the
machine hits all alike. Prints ratios to the best peer and shares of the physical limit; writes build/bench/results.json
and results.md.

    make bench BENCH="--quick"                    the important rows in a few minutes
    benchmarks/run.py --filter 'gemm|conv' --threads 1
    benchmarks/run.py --peer /path/to/python      also compare with the PyTorch of that interpreter

Peers: PyTorch of the interpreters named by --peer and ATHANOR_PEER_PYTHON (colon-separated) and of the system, each as
installed and tuned (memory kept by the process, one pool of threads), from Python and from C++; and plain oneDNN.
"""

import argparse
import collections
import json
import os
import platform
import random
import re
import subprocess
import sys
import time

import sides as peer_programs
from product import measure_product
from report import (HEADINGS, RowResult, best_rate, format_line, markdown, median_rate, merge, put_into_readme,
                    summary, table_lines)
from targets import QUICK, bounds, least_share_of, limit_of, targets_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only rows that match this regular expression")
    parser.add_argument("--threads", default="1,2", help="thread counts, default 1,2")
    parser.add_argument("--quick", action="store_true", help="the important rows only, fewer rounds")
    parser.add_argument("--rounds", type=int, default=0, help="turns per row, default 5, quick 3")
    parser.add_argument("--samples", type=int, default=3, help="timings per turn")
    parser.add_argument("--min-time", type=float, default=0.02, help="least seconds of one timing")
    parser.add_argument("--row-time", type=float, default=6.0, help="seconds after which a side gets no further turn")
    parser.add_argument("--peer", action="append", default=[], help="a Python interpreter that has PyTorch")
    parser.add_argument("--tunings", choices=("plain", "tuned", "both"), default="both")
    parser.add_argument("--peers", default="", help="only peers whose name matches this regular expression")
    parser.add_argument("--peers-only", action="store_true", help="also rows that Athanor does not have")
    parser.add_argument("--no-product", action="store_true", help="leave out start-up, sizes and compile times")
    parser.add_argument("--merge", action="store_true", help="keep earlier results of rows not measured now")
    parser.add_argument("--readme", action="store_true", help="put the summary into README.md")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--timeout", type=float, default=300, help="seconds a side may take for one turn")
    return parser.parse_args()


def base_name(row: str) -> str:
    return row.split("@")[0]


def wanted_rows(sides: list, arguments) -> list:
    """Names without '@', in the order in which the first side lists them."""
    ours = next((s for s in sides if s.name == "athanor"), None)
    order = collections.OrderedDict()
    for side in sides:
        if side.name != "limits" and (side is ours or ours is None or arguments.peers_only):
            for row in sorted(side.rows):
                order[base_name(row)] = None
    rows = [r for r in order if re.search(arguments.filter, r)]
    return [r for r in rows if QUICK.match(r)] if arguments.quick else rows


def run_row(row: str, sides: list, arguments, rounds: int, limit=None) -> dict:
    """Side name -> {way ('' or what follows '@') -> answer}; answers of all rounds joined. `limit`: a row of the side
    "limits" that takes its turns among the others."""
    entries = [(side, name) for side in sides for name in sorted(side.rows)
               if base_name(name) == (limit if side.name == "limits" and limit else row)]
    answers, spent, errors = {}, collections.Counter(), set()
    for _ in range(rounds):
        random.shuffle(entries)
        for side, name in entries:
            if (side.name, name) in errors or spent[side.name, name] > arguments.row_time:
                continue
            if not peer_programs.let_rest([other for other in sides if other is not side]):
                print(f"disturbed: {name} of {side.name} ran beside another side's threads", flush=True)
            start = time.perf_counter()
            # A slow row is not worth several timings in one turn.
            samples = 1 if spent[side.name, name] > arguments.row_time / rounds else arguments.samples
            answer = side.run(name, samples, arguments.min_time)
            spent[side.name, name] += time.perf_counter() - start
            if "error" in answer:
                errors.add((side.name, name))
                print(f"skipped: {name} of {side.name}: {answer['error'][:160]}", flush=True)
                continue
            ways = answers.setdefault(side.name, {})
            way = name.partition("@")[2]
            if way in ways:
                ways[way]["seconds"] += answer["seconds"]
            else:
                ways[way] = answer
    for side in {side for side, _ in entries}:
        side.forget()
    return answers


class Limits:
    """Measures a physical limit when a row first asks for it: name -> items per second."""

    def __init__(self, sides: list, arguments):
        self.side = next((s for s in sides if s.name == "limits"), None)
        self.arguments, self.known = arguments, {}

    def get(self, name):
        if name is None or self.side is None:
            return None
        if name not in self.known:
            ways = run_row(name, [self.side], self.arguments, 3).get("limits", {})
            # Of a row without a target, for orientation only: the best timing of three rounds.
            self.known[name] = max((best_rate(answer) for way, answer in ways.items() if bounds(name, way)),
                                   default=None)
        return self.known[name]


def compare(arguments, threads: int, torches: list, rounds: int) -> list:
    sides = peer_programs.start_sides(arguments.build, torches, threads, arguments.tunings, arguments.timeout,
                                      arguments.peers)
    results = []
    try:
        limits = Limits(sides, arguments)
        peers = {side.name for side in sides if side.is_peer}
        for row in wanted_rows(sides, arguments):
            limit = limit_of(row)
            # What a share of the limit may decide is timed in turns with it: both see the same machine.
            in_turns = limit is not None and (bool(targets_of(row)) or least_share_of(row, threads) is not None)
            answers = run_row(row, [s for s in sides if in_turns or s.name != "limits"], arguments, rounds,
                              limit if in_turns else None)
            known = [median_rate(answer) for way, answer in answers.pop("limits", {}).items() if bounds(limit, way)]
            if not answers:
                continue
            bound = max(known, default=None) or limits.get(limit)
            results.append(RowResult(row, threads, answers, peers, {limit: bound}).as_json())
            for cells in table_lines(results[-1]):
                print(format_line(cells), flush=True)
    finally:
        for side in sides:
            side.close()
    return results


def machine() -> dict:
    description = {"system": platform.platform(), "cpus": len(os.sched_getaffinity(0))}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "cpu family", "model\t")):
                description.setdefault(line.split(":")[0].strip(), line.split(":", 1)[1].strip())
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    description["commit"] = commit.stdout.strip()
    return description


def write_results(document: dict, folder: str, arguments) -> None:
    path = os.path.join(folder, "results.json")
    if arguments.merge and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            document = merge(json.load(file), document)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    with open(os.path.join(folder, "results.md"), "w", encoding="utf-8") as file:
        file.write(markdown(document["rows"]))
    if arguments.readme:
        put_into_readme(os.path.join(ROOT, "README.md"), summary(document))


def main() -> int:
    arguments = parse_arguments()
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    torches = peer_programs.find_torches(arguments.peer)
    if not torches:
        print("no PyTorch found: pass --peer PYTHON or set ATHANOR_PEER_PYTHON; comparing with plain oneDNN only")
    print(format_line(HEADINGS))
    results = []
    for threads in (int(t) for t in arguments.threads.split(",")):
        results += compare(arguments, threads, torches, rounds)
    folder = os.path.join(arguments.build, "bench")
    os.makedirs(folder, exist_ok=True)
    peer_programs.clean_old_programs(folder)
    product = [] if arguments.no_product or arguments.filter else measure_product(arguments.build, torches)
    document = {"machine": machine(), "peers": [f"PyTorch {t.version}" for t in torches], "rows": results,
                "product": product}
    write_results(document, folder, arguments)
    met = sum(row["verdict"].startswith("met") for row in results)
    missed = sum(row["verdict"] == "MISSED" for row in results)
    print(f"{len(results)} rows, {met} targets met, {missed} missed; "
          f"written to {os.path.relpath(folder)}/results.json and results.md")
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
