"""The standard library's multiprocessing, whose queues and pipes hand tensors over in shared memory; spawn."""
from __future__ import annotations

import multiprocessing as _standard
from multiprocessing import *  # noqa: F401,F403
from typing import TYPE_CHECKING, Set

from .reductions import init_reductions
from .spawn import (  # noqa: F401
    ProcessContext as ProcessContext, ProcessException as ProcessException,
    ProcessExitedException as ProcessExitedException, ProcessRaisedException as ProcessRaisedException,
    SpawnContext as SpawnContext, spawn as spawn, start_processes as start_processes,
)

_STRATEGIES = ("file_descriptor", "file_system")
_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted: memory has no name here whatever the strategy, and is handed over by its descriptor. ValueError for a
    strategy that PyTorch has not."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"set_sharing_strategy: expected one of {', '.join(_STRATEGIES)}, got {new_strategy!r}")
    _strategy = new_strategy


def get_sharing_strategy() -> str:
    """What set_sharing_strategy was told."""
    return _strategy


def get_all_sharing_strategies() -> Set[str]:
    """The names that set_sharing_strategy takes."""
    return set(_STRATEGIES)


if not TYPE_CHECKING:

    def __getattr__(name: str):
        return getattr(_standard, name)


init_reductions()
