"""torch.compiler, for programs that ask it: nothing is compiled here, and `athanor.compile` returns its argument."""
from __future__ import annotations

from typing import Any


def is_compiling() -> bool:
    """False: calls run as they come."""
    return False


is_dynamo_compiling = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: Any = None) -> Any:
    """The function itself; also a decorator."""
    return fn if fn is not None else lambda f: f


def compile(*args: Any, **keywords: Any) -> Any:
    """athanor.compile."""
    from . import compile as compile_

    return compile_(*args, **keywords)


def reset() -> None:
    """Nothing was kept."""
