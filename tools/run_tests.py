#!/usr/bin/env python3
"""Runs the tests of a build folder with ctest, in parallel, and closes with one plain line:

    N passed, N failed[, N skipped]

Output of failing tests is shown; skipped tests are listed by name with their reason. The exit status is 0 only when
at least one test ran and none failed.

    tools/run_tests.py build [--filter REGEX] [--jobs N] [--sanitizer address|thread]
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(output: str) -> str:
    """The reason a skipped test gave: `SKIP: why` of a script, or what followed GTEST_SKIP() of a C++ test."""
    for line in output.splitlines():
        if line.startswith("SKIP:"):
            return line[len("SKIP:"):].strip()
    match = re.search(r": Skipped\n(.*?)\n*\[  SKIPPED \]", output, re.DOTALL)
    reason = match.group(1).strip().replace("\n", " ") if match else ""
    return reason or "no reason given"


def read_results(path: str):
    """(passed, failed names, [(skipped name, reason)]) of ctest's JUnit file."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled", "skipped") and case.find("skipped") is not None:
            message = case.find("skipped").get("message") or ""
            # "SKIP_..." is ctest's word for a test that skipped itself; anything else could not be run at all.
            if message.startswith("SKIP_") or status == "disabled":
                skipped.append((name, skip_reason(case.findtext("system-out") or "")))
            else:
                failed.append(f"{name} (not run: {message})")
        else:
            failed.append(name)
    return passed, failed, skipped


def closing_line(passed: int, failed: int, skipped: int) -> str:
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def environment(sanitizer: str) -> dict:
    env = dict(os.environ)
    # Tests run side by side: idle OpenMP threads should sleep rather than spin on a neighbour's core.
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env.setdefault("CTEST_OUTPUT_ON_FAILURE", "1")
    if sanitizer == "address":
        env.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1")
        env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    if sanitizer == "thread":
        suppressions = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tsan_suppressions.txt")
        env.setdefault("TSAN_OPTIONS", f"halt_on_error=0:second_deadlock_stack=1:suppressions={suppressions}")
    return env


def run_shortened(command: list, env: dict) -> int:
    """Runs ctest and shows its output without the two lines that each passing test would take."""
    routine = re.compile(r"\s*Start\s+\d+: |\s*\d+/\d+ Test\s.*\sPassed\s")
    counter = re.compile(r"\s*(\d+)/(\d+) Test\s")
    shown_tenths = 0
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          errors="replace") as process:
        for line in process.stdout:
            if not routine.match(line):
                print(line, end="", flush=True)
            count = counter.match(line)
            if count and int(count[2]) >= 100 and 10 * int(count[1]) // int(count[2]) > shown_tenths:
                shown_tenths = 10 * int(count[1]) // int(count[2])
                print(f"... {count[1]} of {count[2]} tests done", flush=True)
    return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--filter", default="", help="only tests whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sanitizer", choices=("address", "thread"), default="")
    arguments = parser.parse_args()

    junit = os.path.join(os.path.abspath(arguments.build), "test-results.xml")
    if os.path.exists(junit):
        os.remove(junit)
    command = ["ctest", "--test-dir", arguments.build, "--parallel", str(arguments.jobs), "--output-on-failure",
               "--no-tests=error", "--output-junit", junit, "--test-output-size-passed", "4096",
               "--test-output-size-failed", "200000"]
    if arguments.filter:
        command += ["--tests-regex", arguments.filter]
    if arguments.sanitizer == "thread" and shutil.which("setarch"):
        # The thread sanitizer's fixed memory layout does not stand wide address-space randomization.
        command = ["setarch", platform.machine(), "--addr-no-randomize"] + command
    status = run_shortened(command, environment(arguments.sanitizer))
    if not os.path.exists(junit):
        print("no test was run: see ctest's message above", file=sys.stderr)
        return status or 1
    passed, failed, skipped = read_results(junit)
    for name, reason in skipped:
        print(f"skipped: {name}: {reason}")
    for name in failed:
        print(f"failed: {name}")
    print(closing_line(passed, len(failed), len(skipped)))
    return 0 if passed and not failed and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
