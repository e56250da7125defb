"""Which files belong to the source tree; shared by the tools beside it."""

import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def source_files(root: str = ROOT, suffixes: tuple = ()) -> list:
    """Paths relative to `root` of the files git tracks or would track; of all files when there is no git. Sorted."""
    try:
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."],
            capture_output=True, check=True, text=True).stdout
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith(("build", ".git", ".cache", "__pycache__"))]
            names += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return sorted({n for n in names if n.endswith(suffixes or ("",)) and os.path.isfile(os.path.join(root, n))})


def changed_files(base: str, suffixes: tuple = (), root: str = ROOT) -> list:
    """Those of source_files() that differ from the merge base with `base`, or are not committed yet."""
    merge_base = subprocess.run(["git", "-C", root, "merge-base", base, "HEAD"], capture_output=True, check=True,
                                text=True).stdout.strip()
    diff = subprocess.run(["git", "-C", root, "diff", "--name-only", "-z", merge_base], capture_output=True, check=True,
                          text=True).stdout
    untracked = subprocess.run(["git", "-C", root, "ls-files", "-z", "--others", "--exclude-standard"],
                               capture_output=True, check=True, text=True).stdout
    changed = set((diff + untracked).split("\0"))
    return [name for name in source_files(root, suffixes) if name in changed]
