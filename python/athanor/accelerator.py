"""The accelerator of this machine, whatever it is: CUDA devices, or those that ATHANOR_CUDA_ON_CPU serves."""
from __future__ import annotations

from typing import Any, Optional

from . import _C, cuda


def is_available() -> bool:
    """Whether there is one."""
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> Optional[_C.device]:
    """Its kind, as a device without a number; None without one."""
    return _C.device("cuda") if cuda.is_available() else None


def device_count() -> int:
    """How many devices there are."""
    return cuda.device_count()


def current_device_index() -> int:
    """The device that calls without a device take."""
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """Chooses that device."""
    cuda.set_device(device)


def synchronize(device: Any = None) -> None:
    """Waits for what was queued on a device."""
    cuda.synchronize(device)
