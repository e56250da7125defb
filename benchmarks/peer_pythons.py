"""The Pythons whose packages are compared with."""

from __future__ import annotations

import os
import subprocess


def named_pythons(otherwise: str | None = None) -> list:
    """Those of ATHANOR_PEER_PYTHON (colon-separated), or else `otherwise` alone; each once."""
    named = [python for python in os.environ.get("ATHANOR_PEER_PYTHON", "").split(":") if python]
    if not named and otherwise:
        named = [otherwise]
    return list(dict.fromkeys(named))


def version_of(python: str, module: str) -> str:
    """The version of `module` there, without what stands behind a '+'; empty if it cannot be imported."""
    ask = [python, "-c", f"import {module}; print({module.split('.')[0]}.__version__)"]
    try:
        done = subprocess.run(ask, text=True, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().split("+")[0] if done.returncode == 0 else ""


def pythons_with(module: str, otherwise: str | None = None) -> dict:
    """Version -> interpreter, of those named that can import `module`; the first of each version. Says which cannot."""
    found = {}
    for python in named_pythons(otherwise):
        version = version_of(python, module)
        if version:
            found.setdefault(version, python)
        else:
            print(f"left out: {python}, which has no {module}")
    return found
