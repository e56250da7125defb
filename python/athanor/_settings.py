"""Settings of the process: printing, default dtype and device, seeds."""
from __future__ import annotations

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
    """Only the host can be the default. Raises NotImplementedError for others."""
    if device is not None and _C.device(device).type != "cpu":
        raise NotImplementedError("set_default_device: tensors are made on the host unless a device is named")


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


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted and without effect: results do not depend on timing here."""
