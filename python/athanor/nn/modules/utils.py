"""Numbers repeated for every spatial dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Dict


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


def consume_prefix_in_state_dict_if_present(state_dict: Dict[str, Any], prefix: str) -> None:
    """Takes the prefix, such as a wrapper's "module.", off the names that have it, in place and in the same order."""
    for name in list(state_dict):
        if name.startswith(prefix):
            state_dict[name[len(prefix):]] = state_dict.pop(name)
        else:
            state_dict[name] = state_dict.pop(name)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for name in list(metadata):
            # The wrapper itself is named like the prefix without its dot.
            if name and (name == prefix.rstrip(".") or name.startswith(prefix)):
                metadata[name[len(prefix):]] = metadata.pop(name)
