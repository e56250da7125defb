"""The names of reductions, and the arguments that chose them in old programs."""

from __future__ import annotations

import warnings
from typing import Optional

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction's name. ValueError for another name."""
    number = _NUMBERS.get(reduction)
    if number is None:
        if reduction == "elementwise_mean":
            warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.")
            return 1
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return number


def legacy_get_string(size_average: Optional[bool], reduce: Optional[bool], emit_warning: bool = True) -> str:
    """The name that the old arguments size_average and reduce mean."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    name = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.", stacklevel=4
        )
    return name


def number_of(reduction: str, size_average: Optional[bool], reduce: Optional[bool]) -> int:
    """The number of the reduction that a function's arguments mean."""
    if size_average is not None or reduce is not None:
        reduction = legacy_get_string(size_average, reduce)
    number = _NUMBERS.get(reduction)
    return get_enum(reduction) if number is None else number
