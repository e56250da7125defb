"""Names for annotations."""
from __future__ import annotations

import builtins
import os
from typing import IO, Sequence, Union

from ._C import Generator as Generator, Size as Size, Tensor as Tensor, device as device, dtype as dtype

__all__ = ["Device", "FileLike", "Number", "Storage"]

_int, _float, _bool, _dtype, _device = builtins.int, builtins.float, builtins.bool, dtype, device
_size = Union[Size, Sequence[builtins.int]]
Number = Union[builtins.int, builtins.float, builtins.bool]
Device = Union[device, builtins.str, builtins.int, None]
FileLike = Union[builtins.str, "os.PathLike[str]", IO[bytes]]


def __getattr__(name: builtins.str):
    if name == "Storage":
        from .storage import UntypedStorage

        return UntypedStorage
    raise AttributeError(f"module 'athanor.types' has no attribute '{name}'")
