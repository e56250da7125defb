#!/usr/bin/env python3
"""Checks with clang-format that every C++ file is formatted as .clang-format says; --fix rewrites those that are not.

    tools/format.py [--fix] [FILE...]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

from source_files import ROOT, source_files

SUFFIXES = (".h", ".cpp", ".cu", ".cuh")


def unformatted_of(files: list) -> set:
    """A share of the files to a process: starting one takes longer than reading a file."""
    shares = [files[i::os.cpu_count() or 1] for i in range(os.cpu_count() or 1)]
    runs = [subprocess.Popen(["clang-format", "--dry-run", "-ferror-limit=0", *share], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for share in shares if share]
    found = set()
    for run in runs:
        said = run.communicate()[1]
        if run.returncode != 0:
            sys.exit(f"clang-format failed: {said[-2000:]}")
        found.update(re.findall(r"^(.*?):\d+:\d+: warning: code should be clang-formatted", said, re.MULTILINE))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    files = [os.path.abspath(f) for f in arguments.files] or [os.path.join(ROOT, f) for f in source_files(ROOT, SUFFIXES)]
    if not shutil.which("clang-format"):
        print("SKIP: clang-format is not installed")
        return 77
    unformatted = sorted(unformatted_of(files))
    if arguments.fix and unformatted:
        subprocess.run(["clang-format", "-i", *unformatted], check=True)
    for name in (os.path.relpath(path, ROOT) for path in unformatted):
        print(f"{name}: {'formatted' if arguments.fix else 'not formatted; run make format'}")
    return 1 if unformatted and not arguments.fix else 0


if __name__ == "__main__":
    sys.exit(main())
