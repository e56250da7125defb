#!/usr/bin/env python3
"""Compares two builds of the library: the same program of benchmark rows with the one and the other, in turns, so that
a busy moment of the machine hits both alike. Prints how many times as fast the new one is: by the medians, by the best
timings, and by the median of the pairs of neighbouring turns.

    git stash; make benchmarks; cp -a build/lib /tmp/old; git stash pop; make benchmarks
    benchmarks/two_builds.py /tmp/old --filter '^(exp|add).new/1e8' --threads 1,2
"""

import argparse
import pathlib
import re
import statistics
import sys

from sides import Side

LIBRARY = "libathanor.so"


def folder_of_library(name: str) -> pathlib.Path:
    folder = pathlib.Path(name).resolve()
    if not (folder / LIBRARY).is_file():
        raise argparse.ArgumentTypeError(f"{folder} has no {LIBRARY}: give a copy of the build/lib to compare with")
    return folder


def start(name: str, program: pathlib.Path, library: pathlib.Path, threads: int, timeout: float) -> Side:
    return Side(name, [str(program), str(threads)], threads, {"LD_LIBRARY_PATH": str(library)}, False, timeout)


def compare(row: str, old: Side, new: Side, arguments: argparse.Namespace) -> str:
    seconds = {old.name: [], new.name: []}
    for turn in range(arguments.rounds):
        for side in (old, new) if turn % 2 else (new, old):
            answer = side.run(row, 1, arguments.min_time)
            if "error" in answer:
                return f"{row:50} {side.name}: {answer['error']}"
            seconds[side.name] += answer["seconds"]
    before, after = seconds[old.name], seconds[new.name]
    medians = statistics.median(before) / statistics.median(after)
    pairs = statistics.median(b / a for b, a in zip(before, after))
    return f"{row:50} {medians:8.3f} {min(before) / min(after):8.3f} {pairs:8.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=folder_of_library, help="folder of the library to compare with")
    parser.add_argument("--new", type=folder_of_library, help="default: lib of the build")
    parser.add_argument("--filter", default=".", help="only rows that match this regular expression")
    parser.add_argument("--program", default="athanor_bench", help="of the build's bin; default: %(default)s")
    parser.add_argument("--threads", default="1", help="thread counts, such as 1,2")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each build")
    parser.add_argument("--min-time", type=float, default=0.05, help="least seconds of one timing")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "build")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a build may take for one turn")
    arguments = parser.parse_args()
    new_library = arguments.new or folder_of_library(arguments.build / "lib")
    if (arguments.old / LIBRARY).samefile(new_library / LIBRARY):
        parser.error(f"{arguments.old} and {new_library} hold the same library")
    for threads in map(int, arguments.threads.split(",")):
        sides = []
        try:
            for name, library in (("old", arguments.old), ("new", new_library)):
                program = arguments.build / "bin" / arguments.program
                sides.append(start(name, program, library, threads, arguments.timeout))
            rows = [row for row in sides[1].listed if row in sides[0].rows and re.search(arguments.filter, row)]
            if not rows:
                parser.error(f"no row matches {arguments.filter!r}")
            print(f"{f'old / new, {threads} threads':50} {'medians':>8} {'best':>8} {'pairs':>8}")
            for row in rows:
                print(compare(row, *sides, arguments), flush=True)
        finally:
            for side in sides:
                side.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
