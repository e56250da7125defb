#!/usr/bin/env python3
"""Checks with clang-format that every C++ file is formatted as .clang-format says; --fix rewrites those that are not.

    tools/format.py [--fix] [FILE...]
"""

import argparse
import os
import shutil
import subprocess
import sys

from source_files import ROOT, source_files

SUFFIXES = (".h", ".cpp", ".cu", ".cuh")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    files = [os.path.abspath(f) for f in arguments.files] or [os.path.join(ROOT, f) for f in source_files(ROOT, SUFFIXES)]
    if not shutil.which("clang-format"):
        print("SKIP: clang-format is not installed")
        return 77
    unformatted = []
    for path in files:
        with open(path, "rb") as file:
            before = file.read()
        after = subprocess.run(["clang-format", "--assume-filename", path], input=before, capture_output=True,
                               check=True).stdout
        if after != before:
            unformatted.append(os.path.relpath(path, ROOT))
            if arguments.fix:
                with open(path, "wb") as file:
                    file.write(after)
    for name in unformatted:
        print(f"{name}: {'formatted' if arguments.fix else 'not formatted; run make format'}")
    return 1 if unformatted and not arguments.fix else 0


if __name__ == "__main__":
    sys.exit(main())
