"""A Python that has PyTorch: ATHANOR_PEER_PYTHON names one, else python3 is asked."""

from __future__ import annotations

import os
import subprocess
import unittest


def _environment() -> dict:
    left_out = ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
    return {k: v for k, v in os.environ.items() if k not in left_out}


def run(*arguments: str, least: tuple = (2, 9)) -> None:
    """Runs the peer's Python; skips the test if there is none, or one with an older PyTorch than ``least``."""
    python = os.environ.get("ATHANOR_PEER_PYTHON", "python3")
    ask = [python, "-c", "import torch; print(torch.__version__)"]
    try:
        version = subprocess.run(ask, capture_output=True, text=True, env=_environment())
    except OSError as error:
        raise unittest.SkipTest(f"no peer: {error}") from None
    if version.returncode != 0:
        raise unittest.SkipTest(f"{python} has no torch (set ATHANOR_PEER_PYTHON)")
    if tuple(int(n) for n in version.stdout.split("+")[0].split(".")[:2]) < least:
        raise unittest.SkipTest(f"torch {version.stdout.strip()} of {python} is older than {least}")
    subprocess.run([python, *arguments], check=True, env=_environment())
