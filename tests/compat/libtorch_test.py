"""The programs of tests/compat/programs, compiled against libtorch itself, print what they print here.

Looks for libtorch where Debian's libtorch-dev puts it, or below $ATHANOR_LIBTORCH (its include and lib). Ends with
status 77 and says so where there is none.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
BIN = pathlib.Path(os.environ["ATHANOR_BIN"])
CXX = os.environ.get("CXX", "c++")
DEADLINE_S = 400
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
# Relative to the larger of 1 and the number: float32 sums in another order, through some steps of training.
TOLERANCE = 5e-3


def find_libtorch() -> list:
    """Compiler flags, or none."""
    given = os.environ.get("ATHANOR_LIBTORCH")
    for root in [pathlib.Path(given)] if given else [pathlib.Path("/usr"), pathlib.Path("/usr/local")]:
        api = root / "include" / "torch" / "csrc" / "api" / "include"
        if (api / "torch" / "torch.h").exists():
            return [f"-I{api}", f"-I{root / 'include'}", f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}"]
    return []


def run(command: list, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}"
                         f"{done.stderr[-4000:]}")
    return done.stdout


def differences(ours: str, theirs: str) -> list:
    found = []
    if NUMBER.sub("#", ours) != NUMBER.sub("#", theirs):
        return ["the texts differ"]
    for mine, other in zip(ours.splitlines(), theirs.splitlines()):
        for a, b in zip(map(float, NUMBER.findall(mine)), map(float, NUMBER.findall(other))):
            if abs(a - b) > TOLERANCE * max(1, abs(b)):
                found.append(f"  here: {mine}\n  libtorch: {other}")
    return found


def main() -> int:
    flags = find_libtorch()
    if not flags:
        print("SKIP: libtorch is not installed (libtorch-dev, or set ATHANOR_LIBTORCH to its folder)")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        compiler = [CXX, "-std=c++17", "-O0", "-w", *flags[:2]]
        # The header compiled once: it takes longer than all programs.
        shutil.copy(PROGRAMS / "values.h", folder)
        run([*compiler, "-x", "c++-header", f"{folder}/values.h", "-o", f"{folder}/values.h.gch"])
        for source in sorted(PROGRAMS.glob("*.cpp")):
            binary = f"{folder}/{source.stem}"
            shutil.copy(source, folder)
            run([*compiler, f"-I{folder}", f"{folder}/{source.name}", "-o", binary, *flags[2:], "-ltorch",
                 "-ltorch_cpu", "-lc10"])
            found = differences(run([BIN / f"compat_{source.stem}"]), run([binary]))
            print(f"{source.stem}: {'as with libtorch' if not found else 'DIFFERS'}")
            print("\n".join(found), end="\n" if found else "")
            failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
