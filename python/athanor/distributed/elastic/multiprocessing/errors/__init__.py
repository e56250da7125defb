"""`record`: what a failed worker tells its launcher."""
from __future__ import annotations

import functools
import json
import os
import time
import traceback
from typing import Callable, TypeVar

F = TypeVar("F", bound=Callable)


def record(fn: F) -> F:
    """Decorates a worker's main function: an exception's text goes to the file that TORCHELASTIC_ERROR_FILE names, from
    which the launcher reads it for its report."""

    @functools.wraps(fn)
    def wrapper(*args, **keywords):
        try:
            return fn(*args, **keywords)
        except SystemExit:
            raise
        except Exception as error:
            path = os.environ.get("TORCHELASTIC_ERROR_FILE")
            if path:
                message = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": {
                    "py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}}
                with open(path, "w") as file:
                    json.dump(message, file)
            raise

    return wrapper  # type: ignore[return-value]
