"""Storages: the memory that tensors lie in, as t.untyped_storage() (bytes) and t.storage() (elements) show it."""
from __future__ import annotations

from typing import Any

from . import _C
from ._C import Tensor


class _Storage:
    """A view of all elements of a storage; holds it."""

    _all: Tensor

    def __init__(self, *_: Any):
        raise TypeError(f"{type(self).__name__} is what a tensor's storage methods return; make a tensor, which has one")

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._all.data_ptr()

    def nbytes(self) -> int:
        """The size in bytes."""
        return self._all.nbytes

    def size(self) -> int:
        """The number of elements: of bytes, for an untyped storage."""
        return self._all.numel()

    def tolist(self) -> list:
        """The elements as Python's numbers."""
        return self._all.tolist()

    def element_size(self) -> int:
        """The bytes of an element."""
        return self._all.element_size()

    @property
    def device(self) -> _C.device:
        """Where it is."""
        return self._all.device

    @property
    def is_cuda(self) -> bool:
        """Whether that is a CUDA device."""
        return self._all.is_cuda

    def fill_(self, value):
        """Gives every element this value."""
        self._all.fill_(value)
        return self

    def copy_(self, source, non_blocking=False):
        """Takes over the elements of a storage of the same size."""
        self._all.copy_(source._all)
        return self

    def clone(self):
        """The same elements in memory of their own."""
        return self._on(self._all.clone())

    def __deepcopy__(self, memo: dict):
        if id(self) not in memo:
            from ._tensor import _copy_with_memory

            memo[id(self)] = self._on(_copy_with_memory(self._all, memo))
        return memo[id(self)]

    def is_shared(self) -> bool:
        """Whether processes share it."""
        return self._all.is_shared()

    @classmethod
    def _on(cls, elements: Tensor):
        self = object.__new__(cls)
        self._all = elements
        return self

    def __len__(self) -> int:
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, place):
        part = self._all[place]
        return part.item() if part.dim() == 0 else self._on(part)

    def __setitem__(self, place, value) -> None:
        self._all[place] = value

    def __repr__(self) -> str:
        lines = "\n ".join(str(v) for v in self.tolist())
        return f" {lines}\n[{self._kind()} of size {self.size()}]"

    def _kind(self) -> str:
        return f"torch.storage.{type(self).__name__}(device={self.device})"


class UntypedStorage(_Storage):
    """The bytes of a storage."""

    @classmethod
    def _of(cls, t: Tensor) -> UntypedStorage:
        return cls._on(_C._io.share_storage(t.detach(), _C.uint8, 0, [_C._io.storage_id(t)[1]], [1]))

    def _as(self, dtype: _C.dtype) -> Tensor:
        size = dtype.itemsize
        return _C._io.share_storage(self._all, dtype, 0, [self.nbytes() // size], [1])

    def untyped(self) -> UntypedStorage:
        """The storage itself."""
        return self


class TypedStorage(_Storage):
    """The elements of a storage."""

    @classmethod
    def _of(cls, t: Tensor) -> TypedStorage:
        return cls._on(UntypedStorage._of(t)._as(t.dtype))

    @property
    def dtype(self) -> _C.dtype:
        """The type of the elements."""
        return self._all.dtype

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage._of(self._all)

    def _kind(self) -> str:
        return f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
