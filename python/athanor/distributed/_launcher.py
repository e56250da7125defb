"""Hands over to the library's launcher, which starts the workers with this Python."""
from __future__ import annotations

import os
import sys
from typing import List


def program() -> str:
    """The launcher: beside the package in an installed one, in build/bin beside build/python, or in PATH.
    RuntimeError if it is nowhere."""
    package = os.path.dirname(os.path.abspath(sys.modules["athanor"].__file__))
    tried = [os.path.join(package, "bin", "athanor"), os.path.join(package, "..", "..", "bin", "athanor")]
    chosen = os.environ.get("ATHANOR_LAUNCHER")
    for path in [chosen] if chosen else tried:
        if os.access(path, os.X_OK):
            return os.path.normpath(path)
    import shutil

    found = None if chosen else shutil.which("athanor")
    if found is None:
        raise RuntimeError(f"the launcher is not there: looked for {', '.join([chosen] if chosen else tried)} and in "
                           "PATH; ATHANOR_LAUNCHER names another one")
    return found


def become(command: str, arguments: List[str]) -> None:
    """Replaces this process by `athanor COMMAND ARGUMENTS`; does not return."""
    environment = dict(os.environ)
    environment.setdefault("PYTHON_EXEC", sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    path = program()
    os.execve(path, [path, command, *arguments], environment)
