"""Settings of the process (printing, default dtype and device, seeds), and the limits of dtypes."""
from __future__ import annotations

from typing import Any, Optional

from . import _C
from ._legacy import dtype_of_class, parse_type_name

_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, 1 << 62, 3, 80)}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None) -> None:
    """How tensors are printed: digits, the number of elements beyond which they are summarized, the items shown at each
    end then, the width of a line, and whether numbers are in scientific notation (None: as the values suggest)."""
    current = list(_C._get_print_options())
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile should be one of {', '.join(_PROFILES)}, got {profile!r}")
        current[:4] = _PROFILES[profile]
    for i, value in enumerate((precision, threshold, edgeitems, linewidth)):
        if value is not None:
            current[i] = min(int(value) if value != float("inf") else 1 << 62, 1 << 62)
    current[4] = sci_mode
    _C._set_print_options(*current)


def set_default_dtype(d) -> None:
    """The dtype of new floating tensors. Raises TypeError unless it is a floating one."""
    _C.set_default_dtype(d)


def set_default_tensor_type(t) -> None:
    """The old spelling of set_default_dtype, by a type or its name."""
    set_default_dtype(parse_type_name(t)[0] if isinstance(t, str) else dtype_of_class(t))


def set_default_device(device) -> None:
    """Where this thread makes tensors of nothing, or of data, if no device is named; None: on the host."""
    _C._set_default_device(None if device is None else _C.device(device))


def get_default_device() -> _C.device:
    """Where this thread makes tensors if no device is named: what set_default_device or `with torch.device(...)` said."""
    return _C._get_default_device()


def get_rng_state():
    """The state of the default generator as a tensor of bytes."""
    return _C.default_generator.get_state()


def set_rng_state(new_state) -> None:
    """Puts the default generator into a state that get_rng_state gave."""
    _C.default_generator.set_state(new_state)


def initial_seed() -> int:
    """The seed the default generator started from."""
    return _C.default_generator.initial_seed()


def seed() -> int:
    """Seeds the default generator from the system's entropy and returns the seed."""
    return _C.default_generator.seed()


_deterministic = (False, False)
_matmul_precision = "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Noted and without effect: results do not depend on timing here."""
    global _deterministic
    _deterministic = (bool(mode), bool(mode and warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """What use_deterministic_algorithms was told."""
    return _deterministic[0]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether use_deterministic_algorithms was told to warn only."""
    return _deterministic[1]


def set_float32_matmul_precision(precision: str) -> None:
    """Noted and without effect: products of float32 are of float32 here. Raises RuntimeError unless it is "highest", "high"
    or "medium"."""
    global _matmul_precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"float32 matmul precision should be 'highest', 'high' or 'medium', got {precision!r}")
    _matmul_precision = precision


def get_float32_matmul_precision() -> str:
    """What set_float32_matmul_precision was told; "highest" at first."""
    return _matmul_precision


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept."""
    return False


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
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


_warn_always = False


def set_warn_always(b: bool) -> None:
    """Kept, and changes nothing: warnings here follow Python's filters."""
    global _warn_always
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """What set_warn_always was given."""
    return _warn_always


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """0 or "default", 1 or "warn", 2 or "error": use_deterministic_algorithms in other words. Raises RuntimeError for others."""
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if not isinstance(mode, int) or not 0 <= mode <= 2:
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, 2, `default`, `warn` or `error`, but got {debug_mode!r}")
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2; see set_deterministic_debug_mode."""
    if not are_deterministic_algorithms_enabled():
        return 0
    return 1 if is_deterministic_algorithms_warn_only_enabled() else 2
