"""Training loops of unequal length."""
from __future__ import annotations

from typing import Any, List

from ..._C import _distributed as _core


class Joinable:
    """What Join can join: modules wrapped by DistributedDataParallel."""


class Join:
    """`with Join([ddp]):` around a training loop: a rank that leaves it early answers the others' collectives until
    all have ended; parameters and buffers are then those of the rank that trained longest.

    divide_by_initial_world_size (keyword, True): gradients are divided by the number of all ranks, not of those that
    still have inputs. enable: off where inputs are known to be even. throw_on_early_termination: all ranks raise
    RuntimeError as soon as one has run out of inputs.
    """

    def __init__(self, joinables: List[Any], enable: bool = True, throw_on_early_termination: bool = False,
                 **kwargs: Any):
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        for j in joinables:
            if not isinstance(j, Joinable):
                raise TypeError(f"Join: expected modules wrapped by DistributedDataParallel, got {type(j).__name__}")
        divide = kwargs.pop("divide_by_initial_world_size", True)
        if kwargs:
            raise TypeError(f"Join() got an unexpected keyword argument '{next(iter(kwargs))}'")
        self._block = _core._Join([j._core for j in joinables], divide, enable, throw_on_early_termination)

    def __enter__(self) -> "Join":
        self._block.enter()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._block.exit(kind is None)
