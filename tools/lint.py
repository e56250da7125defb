#!/usr/bin/env python3
"""Runs clang-tidy with .clang-tidy on the C++ sources that changed since `main`, or on all of them.

    tools/lint.py [--all] [--base REV] [--build DIR] [--jobs N] [FILE...]

A changed header is checked through one source that includes it. Needs build/compile_commands.json (`make build`
writes it); clang gets a copy without what only GCC knows. The exit status is 1 when there is any finding.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

from source_files import ROOT, changed_files, source_files


def clang_arguments(command: str) -> list:
    """A compile command without GCC's precompiled header and without flags that clang refuses."""
    kept, words = [], iter(shlex.split(command))
    for word in words:
        if word in ("-include", "-o"):
            name = next(words)
            if not name.endswith("cmake_pch.hxx"):
                kept += [word, name]
        elif word not in ("-fpch-preprocess", "-Winvalid-pch") and not word.startswith("-fvect-cost-model="):
            kept.append(word)
    return kept


def apart(entry: dict) -> list:
    """One entry for each source of a file that the build wrote to compile several as one; the entry itself otherwise."""
    if not re.search(r"/unity/\w+/\w+\.cpp$", entry["file"]):
        return [entry]
    with open(entry["file"], encoding="utf-8") as file:
        sources = [os.path.join(ROOT, name) for name in re.findall(r'^#include "(.+\.cpp)"', file.read(), re.MULTILINE)]
    return [dict(entry, file=source, arguments=[source if word == entry["file"] else word for word in entry["arguments"]])
            for source in sources]


def compiled_sources(build: str, folder: str) -> dict:
    """Writes the compile commands for clang into `folder`; gives source path relative to the root -> its entry."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        entry["arguments"] = clang_arguments(entry.pop("command"))
    entries = [part for entry in entries for part in apart(entry)]
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "compile_commands.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(entries, file)
    os.replace(path + ".part", path)
    return {os.path.relpath(entry["file"], ROOT): entry for entry in entries}


def sources_for(names: list, compiled: dict) -> list:
    """Replaces each header by one compiled source that includes it (its own .cpp where there is one)."""
    chosen, headers = set(), []
    for name in names:
        if name.endswith(".cpp"):
            chosen.add(name)
        else:
            headers.append(name)
    texts = {}
    for header in headers:
        own = header[:-2] + ".cpp"
        if own in compiled:
            chosen.add(own)
            continue
        needle = re.compile(r'#include\s+[<"]' + re.escape(header) + r'[>"]')
        for source in sorted(compiled):
            if source not in texts:
                with open(os.path.join(ROOT, source), encoding="utf-8", errors="replace") as file:
                    texts[source] = file.read()
            if needle.search(texts[source]):
                chosen.add(source)
                break
    return sorted(name for name in chosen if name in compiled)


def tidy(source: str, folder: str):
    done = subprocess.run(["clang-tidy", "--quiet", "-p", folder, os.path.join(ROOT, source)], capture_output=True,
                          text=True, cwd=ROOT)
    output = "\n".join(line for line in done.stdout.splitlines() if line.strip())
    # clang-tidy counts suppressed warnings of system headers on stderr; only real trouble matters.
    errors = [line for line in done.stderr.splitlines() if " error: " in line or line.startswith("Error")]
    return source, done.returncode, "\n".join([output] + errors).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--base", default="main")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()

    suffixes = (".h", ".cpp")
    if arguments.files:
        names = [os.path.relpath(os.path.abspath(f), ROOT) for f in arguments.files]
    elif arguments.all:
        names = source_files(ROOT, suffixes)
    else:
        try:
            names = changed_files(arguments.base, suffixes)
        except (OSError, subprocess.CalledProcessError):
            print(f"no branch '{arguments.base}' to compare with: checking everything", file=sys.stderr)
            names = source_files(ROOT, suffixes)
    folder = os.path.join(arguments.build, "lint")
    sources = sources_for(names, compiled_sources(arguments.build, folder))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for source, status, output in pool.map(lambda s: tidy(s, folder), sources):
            if status != 0:
                failed += 1
                print(output, flush=True)
    print(f"clang-tidy: {len(sources)} sources checked, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
