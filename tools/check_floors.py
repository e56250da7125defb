#!/usr/bin/env python3
"""Checks that includes go downward: a room of the library may include only rooms on floors below its own.

It also finds circles of includes between files, headers of the interface that reach one of the libraries we keep out
of it (fmt, spdlog, oneDNN, Highway, JSON, zlib, curl, image codecs, the command line parser, OpenMP), and quoted
includes that are not written from the root.

    tools/check_floors.py [--root DIR]

Prints one line per finding and exits with 1 when there is any.
"""

import argparse
import os
import re
import sys

from source_files import ROOT, source_files

# Floor of each room of the library; rooms on one floor do not include each other.
FLOORS = {
    "base": 1,
    "profiler": 2,
    "tensor": 3,
    "tape": 4,
    "ops": 5,
    "device": 6, "autograd": 6, "nn": 6, "optim": 6,
    "io": 7, "models": 7, "distributed": 7,
    "data": 8, "parallel": 8, "launch": 8,
}
# The umbrella headers (athanor/athanor.h …) stand above all rooms; no room includes them.
UMBRELLA_FLOOR = 9
# Folders outside the library use it from above, and nothing in the library includes them.
OUTSIDE = ("cli", "plugins", "python", "examples", "tests", "benchmarks")

# Headers that are not part of the interface: kernels and the like. Others must be free of PRIVATE_INCLUDES.
PRIVATE_HEADERS = ("athanor/device/",)
PRIVATE_INCLUDES = re.compile(
    r"^(fmt|spdlog|oneapi|hwy|nlohmann|curl|CLI|libpng\d*|nanobind)/|^(dnnl\w*|zlib|zconf|png|jpeglib|omp|json)\.h(pp)?$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def room_of(path: str) -> str:
    """'nn' for athanor/nn/linear.h, '' for an umbrella header, None outside the library."""
    parts = path.split("/")
    if parts[0] != "athanor":
        return None
    return parts[1] if len(parts) > 2 else ""


def floor_of(path: str):
    room = room_of(path)
    if room is None:
        return None
    return UMBRELLA_FLOOR if room == "" else FLOORS.get(room)


def read_includes(root: str) -> dict:
    """path -> [(quote, included name, line)] of every C++ file below root."""
    includes = {}
    for path in source_files(root, (".h", ".cpp", ".cu", ".cuh")):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        includes[path] = [(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in INCLUDE.finditer(text)]
    return includes


def check_direction(path: str, entries: list) -> list:
    """Findings about what one file of the library includes directly."""
    findings = []
    own_room, own_floor = room_of(path), floor_of(path)
    if own_floor is None:
        return [f"{path}: room '{own_room}' has no floor; add it to FLOORS in tools/check_floors.py"]
    for quote, name, line in entries:
        where = f"{path}:{line}"
        if name.split("/")[0] in OUTSIDE:
            findings.append(f"{where}: the library includes \"{name}\" of a folder above it")
            continue
        room = room_of(name)
        if room is None:
            if quote == '"' and ("/" not in name or name.startswith("..")):
                findings.append(f"{where}: \"{name}\" should be written from the root, as \"athanor/...\"")
            continue
        floor = floor_of(name)
        if floor is None:
            findings.append(f"{where}: \"{name}\" is in room '{room}', which has no floor")
        elif room != own_room and floor >= own_floor:
            findings.append(f"{where}: {own_room or 'athanor'} (floor {own_floor}) includes \"{name}\" of "
                            f"{room or 'athanor'} (floor {floor}); only lower floors are allowed")
    return findings


def find_circles(includes: dict) -> list:
    """One finding for each circle met in a depth-first walk over the include graph."""
    findings, done = [], set()
    for start in sorted(includes):
        if start in done:
            continue
        trail, on_trail = [], set()
        stack = [(start, iter([n for _, n, _ in includes[start] if n in includes]))]
        trail.append(start)
        on_trail.add(start)
        while stack:
            path, names = stack[-1]
            name = next(names, None)
            if name is None:
                stack.pop()
                on_trail.discard(trail.pop())
                done.add(path)
            elif name == path:
                continue  # Highway's foreach_target includes the file itself on purpose
            elif name in on_trail:
                circle = trail[trail.index(name):] + [name]
                findings.append("circle of includes: " + " -> ".join(circle))
            elif name not in done:
                stack.append((name, iter([n for _, n, _ in includes[name] if n in includes])))
                trail.append(name)
                on_trail.add(name)
    return findings


def check_interface(includes: dict) -> list:
    """Findings about interface headers that reach, directly or not, a library that should stay inside."""
    findings = []
    for header in sorted(includes):
        if not header.endswith(".h") or room_of(header) is None or header.startswith(PRIVATE_HEADERS):
            continue
        came_from, queue = {header: None}, [header]
        while queue:
            path = queue.pop()
            for _, name, _ in includes[path]:
                if PRIVATE_INCLUDES.match(name):
                    chain = [name]
                    step = path
                    while step is not None:
                        chain.append(step)
                        step = came_from[step]
                    findings.append("interface header reaches a private library: " + " -> ".join(reversed(chain)))
                elif name in includes and name not in came_from:
                    came_from[name] = path
                    queue.append(name)
    return findings


def check(root: str) -> list:
    includes = read_includes(root)
    findings = []
    for path in sorted(includes):
        if room_of(path) is not None:
            findings += check_direction(path, includes[path])
    return findings + find_circles(includes) + check_interface(includes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=ROOT)
    findings = check(parser.parse_args().root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
