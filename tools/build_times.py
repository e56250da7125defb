#!/usr/bin/env python3
"""Where the time of a build goes: the slowest steps of the latest runs that .ninja_log knows, and sums by folder.

    tools/build_times.py [BUILD] [--top N]

A step's time is wall time: what a file costs only when no more steps ran than there are processors, and all of it when
ccache had nothing. `CCACHE_DISABLE=1 make build` in a fresh folder measures a cold build.
"""

import argparse
import collections
import os
import sys


def read_steps(path: str) -> dict:
    """Output -> seconds of the last run that made it. Steps of several outputs count once."""
    seconds, steps = {}, {}
    with open(path, encoding="utf-8") as file:
        if not file.readline().startswith("# ninja log"):
            raise ValueError(f"{path} is not a log of ninja")
        for line in file:
            start, end, _, output, command = line.rstrip("\n").split("\t")
            steps[output] = (command, start, end)
    seen = set()
    for output, step in steps.items():
        if step not in seen:
            seen.add(step)
            seconds[output] = (int(step[2]) - int(step[1])) / 1000
    return seconds


def readable(output: str) -> str:
    """athanor/ops/unary.cpp of CMakeFiles/athanor.dir/athanor/ops/unary.cpp.o."""
    folder, mark, rest = output.partition("CMakeFiles/")
    if not mark or ".dir/" not in rest:
        return output
    name = rest.split(".dir/", 1)[1]
    return folder + (name[:-2] if name.endswith(".o") else name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build", help="the build folder")
    parser.add_argument("--top", type=int, default=20, help="how many steps to list")
    arguments = parser.parse_args()
    log = os.path.join(arguments.build, ".ninja_log")
    try:
        seconds = read_steps(log)
    except (OSError, ValueError) as error:
        print(f"build_times: cannot read {log}: {error}", file=sys.stderr)
        return 1
    folders = collections.Counter()
    for output, time in seconds.items():
        name = readable(output)
        folders[os.path.dirname(name) or "."] += time
    for output, time in sorted(seconds.items(), key=lambda item: -item[1])[:arguments.top]:
        print(f"{time:8.1f} s  {readable(output)}")
    print()
    for folder, time in folders.most_common(arguments.top):
        print(f"{time:8.1f} s  {folder}/")
    print(f"{sum(seconds.values()):8.1f} s  in all, {len(seconds)} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
