"""Numbers repeated for every spatial dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple]:
    def parse(x: Any) -> tuple:
        if isinstance(x, Iterable) and not isinstance(x, str):
            return tuple(x)
        return (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """(1, 2), 2 → (2, 2, 1, 1): what pad() wants of a padding per dimension."""
    return tuple(x for x in reversed(t) for _ in range(n))
