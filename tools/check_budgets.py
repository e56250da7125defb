#!/usr/bin/env python3
"""Checks the budgets a user feels: size of the library, compile time of a program, start-up time and memory.

    tools/check_budgets.py size     --library FILE --limit-mb 15
    tools/check_budgets.py compile  --source FILE --limit-s 4 --limit-mb 400 [--yardstick FILE --yardstick-s 3]
                                    -- COMPILER FLAGS...
    tools/check_budgets.py start-up --program FILE --limit-ms 20 --limit-mb 30

Prints what was measured. Exit status: 0 within the budget, 1 over it (or the thing measured does not work), 77 when a
file it needs does not exist (with a line `SKIP: why`). 1 MB = 1e6 bytes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
COMPILE_TRIES = 5


class Usage:
    """What one finished command took, its children included."""

    def __init__(self, command: list):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        self.wall_s = time.perf_counter() - start
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.memory_mb = usage.ru_maxrss * 1024 / 1e6
        self.status = process.returncode = os.waitstatus_to_exitcode(status)


def best_usage(command: list, tries: int, within) -> Usage:
    """The first run for which within(run) holds, else the quickest of `tries`; None when the command fails."""
    best = None
    for _ in range(tries):
        usage = Usage(command)
        if usage.status != 0:
            print(f"{command[0]} ended with status {usage.status}")
            return None
        if best is None or usage.cpu_s < best.cpu_s:
            best = usage
        if within(usage):
            return usage
    return best


def verdict(checks: list) -> int:
    """checks: (what, measured, limit, unit)."""
    for what, measured, limit, unit in checks:
        print(f"{what}: {measured:.2f} {unit}, budget {limit:g} {unit}{'' if measured < limit else '  OVER'}")
    return 0 if all(measured < limit for _, measured, limit, _ in checks) else 1


def stripped_size_mb(library: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "library.so")
        shutil.copyfile(library, stripped)
        subprocess.run(["strip", "--strip-unneeded", stripped], check=True)
        return os.path.getsize(stripped) / 1e6


def check_size(arguments) -> int:
    return verdict([("stripped library", stripped_size_mb(arguments.library), arguments.limit_mb, "MB")])


def compile_once(arguments, source: str) -> Usage:
    with tempfile.TemporaryDirectory() as folder:
        usage = Usage(arguments.command + ["-c", source, "-o", os.path.join(folder, "program.o")])
    if usage.status != 0:
        sys.exit(f"{arguments.command[0]} ended with status {usage.status} for {source}")
    return usage


def check_compile(arguments) -> int:
    """The best of up to COMPILE_TRIES compilations against the limit. Where a yardstick is given, it is compiled in
    turn with the program, and the limit grows as its best time does: a machine's speed may double within a minute, so
    that a yardstick taken once, before or after, would tell nothing."""
    tries, yardsticks, limit_s = [], [], arguments.limit_s
    for _ in range(COMPILE_TRIES):
        tries.append(compile_once(arguments, arguments.source))
        # Processor time, so that a busy machine does not fail it; the compiler uses one core.
        best = min(tries, key=lambda usage: usage.cpu_s)
        if best.cpu_s >= limit_s and arguments.yardstick:
            yardsticks.append(compile_once(arguments, arguments.yardstick).cpu_s)
            limit_s = arguments.limit_s * max(1.0, min(yardsticks) / arguments.yardstick_s)
        if best.cpu_s < limit_s:
            break
    if yardsticks:
        print(f"yardstick: {min(yardsticks):.2f} s, {arguments.yardstick_s:g} s when the machine is calm")
    return verdict([("compile time", best.cpu_s, limit_s, "s"),
                    ("compiler memory", best.memory_mb, arguments.limit_mb, "MB")])


def check_start_up(arguments) -> int:
    def within(u):
        return u.wall_s * 1e3 < arguments.limit_ms and u.memory_mb < arguments.limit_mb

    usage = best_usage([arguments.program], 20, within)
    if usage is None:
        return 1
    return verdict([("start-up", usage.wall_s * 1e3, arguments.limit_ms, "ms"),
                    ("resident memory", usage.memory_mb, arguments.limit_mb, "MB")])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    size = what.add_parser("size")
    size.add_argument("--library", required=True)
    size.add_argument("--limit-mb", type=float, required=True)
    size.set_defaults(check=check_size, needs=lambda a: [a.library])
    compiling = what.add_parser("compile")
    compiling.add_argument("--source", required=True)
    compiling.add_argument("--requires", action="append", default=[], help="skip unless this file exists")
    compiling.add_argument("--limit-s", type=float, required=True)
    compiling.add_argument("--limit-mb", type=float, required=True)
    compiling.add_argument("--yardstick", help="a program whose compile time tells how slow the machine is just now")
    compiling.add_argument("--yardstick-s", type=float, default=1.0, help="its processor seconds on a calm machine")
    compiling.add_argument("command", nargs="+")
    compiling.set_defaults(check=check_compile, needs=lambda a: [a.source] + a.requires)
    start_up = what.add_parser("start-up")
    start_up.add_argument("--program", required=True)
    start_up.add_argument("--limit-ms", type=float, required=True)
    start_up.add_argument("--limit-mb", type=float, required=True)
    start_up.set_defaults(check=check_start_up, needs=lambda a: [a.program])
    arguments = parser.parse_args()
    for path in arguments.needs(arguments):
        if not os.path.exists(path):
            print(f"SKIP: {path} does not exist")
            return SKIPPED
    return arguments.check(arguments)


if __name__ == "__main__":
    sys.exit(main())
