"""finfo and iinfo: the limits of dtypes."""
from __future__ import annotations

from typing import Any, Optional

from . import _C

# Bits in all, those of the fraction, the largest exponent, and the decimal digits that survive a round trip.
_FLOATS = {_C.float16: (16, 10, 15, 3), _C.bfloat16: (16, 7, 127, 2), _C.float32: (32, 23, 127, 6),
           _C.float64: (64, 52, 1023, 15)}
_INTEGERS = {_C.uint8: (8, False), _C.int8: (8, True), _C.int16: (16, True), _C.int32: (32, True), _C.int64: (64, True)}


class _Info:
    dtype: str
    bits: int

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((type(self), self.dtype))


class finfo(_Info):  # noqa: N801
    """The limits of a floating dtype, of the default one if none is given: bits, eps, max, min, tiny, smallest_normal,
    resolution, and dtype, its name. Raises TypeError for a dtype that is not floating."""

    def __init__(self, type: Optional[_C.dtype] = None) -> None:
        if type is None:
            type = _C.get_default_dtype()
        if type not in _FLOATS:
            raise TypeError(f"torch.finfo() requires a floating point input type, got {type!r}. Use torch.iinfo to handle "
                            "'torch.finfo'")
        self.bits, fraction, exponent, digits = _FLOATS[type]
        self.dtype = repr(type).split(".")[1]
        self.eps = 2.0**-fraction
        self.max = (2 - self.eps) * 2.0**exponent
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - exponent)
        self.resolution = float(f"1e-{digits}")

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo(_Info):  # noqa: N801
    """The limits of an integer dtype: bits, max, min, and dtype, its name. Raises TypeError for any other."""

    def __init__(self, type: _C.dtype) -> None:
        if type not in _INTEGERS:
            raise TypeError(f"torch.iinfo() requires an integer input type, got {type!r}. Use torch.finfo to handle "
                            "'torch.iinfo'")
        self.bits, signed = _INTEGERS[type]
        self.dtype = repr(type).split(".")[1]
        self.min = -(2 ** (self.bits - 1)) if signed else 0
        self.max = 2 ** (self.bits - 1 if signed else self.bits) - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
