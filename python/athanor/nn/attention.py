"""Which kernel computes attention. There is one here: fused, its memory linear in the sequence."""

from __future__ import annotations

import contextlib
import enum
from typing import Any, Iterator

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.Enum):
    """PyTorch's kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Takes a kernel or a list of them and changes nothing: the one that is here serves for all.

    Raises:
        AssertionError: something else than kernels.
    """
    for backend in backends if isinstance(backends, (list, tuple)) else [backends]:
        assert isinstance(backend, SDPBackend), f"Backend must be an instance of SDPBackend, got {type(backend).__name__}"
    yield
