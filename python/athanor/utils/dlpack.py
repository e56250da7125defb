"""DLPack: tensors of other libraries, and for them."""

from __future__ import annotations

from typing import Any

from athanor import _C, from_dlpack
from athanor._C import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule on the tensor's memory, which one consumer may take."""
    return _C._to_dlpack(tensor, False)
