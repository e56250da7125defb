#!/usr/bin/env python3
"""Checks what every file of the repository has to keep: length, `#pragma once`, licence, no path of one machine, no
bare TODO, no tab, no merge marker.

    tools/check_files.py [--root DIR]

Prints one line per finding and exits with 1 when there is any.
"""

import argparse
import os
import re
import sys

from source_files import ROOT, source_files

MAX_LINES = 600
LENGTH_SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".py")
# Files that may be longer: path -> (limit, reason).
LONGER = {}

TEXT_SUFFIXES = LENGTH_SUFFIXES + (".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".sh", ".in", ".toml", ".cfg")
TEXT_NAMES = ("Makefile", "Dockerfile", "run")
# Headers that are included several times on purpose.
NO_PRAGMA_ONCE = re.compile(r"(-inl\.h|\.inc\.h)$")
# Highway's guard: such a header is included once per target.
HIGHWAY_GUARD = re.compile(r"^#if defined\(\w+\) == defined\(HWY_TARGET_TOGGLE\)$", re.MULTILINE)

# Folders that exist on one person's machine only. Container images may choose their own folders.
MACHINE_PATH = re.compile(r"""(?<![\w.}/$-])/(home/\w+|root/\w+|Users/\w+|work/\w+|opt/\w+|mnt/\w+)""")
MACHINE_PATH_ALLOWED = ("deploy/", "docs/deployment.md", "tests/deploy/")
TEMP_PATH = re.compile(r"""["']/tmp/\w""")
BARE_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\([^)]+\):? \S.{8,}|: ?\S.{8,})")
MERGE_MARKER = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
FOREIGN_LICENCE = re.compile(r"^\W*(Copyright \(?[cC(\d]|SPDX-License-Identifier: (?!Apache-2\.0))", re.MULTILINE)
# This file and its test spell out what they look for.
SELF = ("tools/check_files.py", "tests/checks/files_test.py")


def is_text(path: str) -> bool:
    return path.endswith(TEXT_SUFFIXES) or os.path.basename(path) in TEXT_NAMES


def matches(path: str, text: str, pattern, message: str) -> list:
    return [f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {message.format(m[0].strip())}"
            for m in pattern.finditer(text)]


def check_header(path: str, text: str) -> list:
    if not path.endswith((".h", ".cuh")) or NO_PRAGMA_ONCE.search(path) or HIGHWAY_GUARD.search(text):
        return []
    for line in text.splitlines():
        if line.strip() and not line.startswith("//"):
            return [] if line.strip() == "#pragma once" else [f"{path}: the first line of code should be #pragma once"]
    return [f"{path}: empty header"]


def check_file(path: str, text: str) -> list:
    findings = check_header(path, text)
    lines = text.count("\n")
    limit, _ = LONGER.get(path, (MAX_LINES, ""))
    if path.endswith(LENGTH_SUFFIXES) and lines > limit:
        findings.append(f"{path}: {lines} lines, at most {limit} are allowed; split it by concept")
    if text and not text.endswith("\n"):
        findings.append(f"{path}: no newline at the end")
    if "\r" in text:
        findings.append(f"{path}: carriage returns")
    findings += matches(path, text, MERGE_MARKER, "merge marker")
    if path in SELF:
        return findings
    if "\t" in text and path.endswith((".h", ".cpp", ".py", ".cmake", ".json", ".sh")):
        findings += matches(path, text, re.compile("\t"), "tab")
    if not path.startswith(MACHINE_PATH_ALLOWED):
        findings += matches(path, text, MACHINE_PATH, "'{}' is a path of one machine")
    if path.endswith(LENGTH_SUFFIXES):
        findings += matches(path, text, TEMP_PATH, "fixed file below /tmp; ask for a temporary folder")
    if not path.endswith(".md"):
        findings += matches(path, text, BARE_TODO, "'{}' needs a text that says what and when: TODO(topic): ...")
        findings += matches(path, text, FOREIGN_LICENCE, "'{}': files here are under the LICENSE of the repository")
    return findings


def check(root: str) -> list:
    findings = []
    try:
        with open(os.path.join(root, "LICENSE"), encoding="utf-8") as file:
            if "Apache License" not in file.read(400):
                findings.append("LICENSE: expected the Apache License, version 2.0")
    except OSError:
        findings.append("LICENSE: missing")
    for path in source_files(root):
        if not is_text(path):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8", newline="") as file:
                findings += check_file(path, file.read())
        except UnicodeDecodeError as error:
            findings.append(f"{path}: not UTF-8 ({error.reason} at byte {error.start})")
    for path, (_, reason) in LONGER.items():
        if len(reason) < 20:
            findings.append(f"tools/check_files.py: LONGER names {path} without a reason")
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=ROOT)
    findings = check(parser.parse_args().root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
