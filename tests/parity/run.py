#!/usr/bin/env python3
"""Compares every op with PyTorch's of the same name: tests/parity/run.py build/bin/parity_dump [--keep FOLDER]

The program calls the rows of the op table and writes each call's arguments, results and gradients; compare.py, run by a
Python that has torch (ATHANOR_PEER_PYTHON, else this one), repeats the calls there. Skips where no torch is found.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def peers():
    """The Pythons that have torch: those of ATHANOR_PEER_PYTHON (colon-separated), or else this one."""
    named = [p for p in os.environ.get("ATHANOR_PEER_PYTHON", "").split(":") if p]
    found = []
    for python in named or [sys.executable]:
        try:
            version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True)
        except OSError:
            continue
        if version.returncode == 0:
            found.append(python)
    return found, ":".join(named) or sys.executable


def compare(dump, pythons, folder):
    subprocess.run([dump, folder], check=True)
    result = 0
    for python in pythons:
        result |= subprocess.run([python, str(HERE / "compare.py"), folder]).returncode
        spoiled = subprocess.run([python, str(HERE / "compare.py"), folder, "--op", "^exp$", "--spoil", "exp"],
                                 capture_output=True, text=True)
        if spoiled.returncode == 0 or "DIFFERS exp" not in spoiled.stdout:
            print("a wrong result of exp was not noticed")
            result |= 1
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", help="the program parity_dump")
    parser.add_argument("--keep", metavar="FOLDER", help="write the calls here and leave them")
    args = parser.parse_args()
    pythons, tried = peers()
    if not pythons:
        print(f"SKIP: no torch in {tried}; set ATHANOR_PEER_PYTHON to a Python that has it")
        return 77
    if not os.path.exists(args.dump):
        print(f"SKIP: {args.dump} is not built; `make test` builds it where torch is found, ninja's target `parity` anywhere")
        return 77
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
        return compare(args.dump, pythons, args.keep)
    with tempfile.TemporaryDirectory(prefix="athanor-parity-") as folder:
        return compare(args.dump, pythons, folder)


if __name__ == "__main__":
    sys.exit(main())
