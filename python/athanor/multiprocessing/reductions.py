"""How a tensor goes to another process: its values lie in memory without a name, whose descriptor is handed over.

Both processes see the same values afterwards. The memory goes when the last tensor in any process does, however the
processes end: there is nothing in /dev/shm.
"""
from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing import reduction
from typing import Any, Dict, Optional, Tuple

import athanor
from athanor import Tensor
from athanor._C import _io


class _Memory:
    """One piece of shared memory of this process, known as long as tensors lie in it."""

    by_address: Dict[int, "_Memory"] = {}
    by_inode: Dict[int, "_Memory"] = {}

    def __init__(self, descriptor: int, size: int):
        self.descriptor, self.size = descriptor, size
        mapping = mmap.mmap(descriptor, size)
        self.mapping = weakref.ref(mapping)
        self.inode = os.fstat(descriptor).st_ino
        base = _io.over_buffer(mapping, athanor.uint8, [size])
        self.base = weakref.ref(base)
        self.address = base.data_ptr()
        _Memory.by_address[self.address] = self
        _Memory.by_inode[self.inode] = self
        weakref.finalize(mapping, _Memory._forget, self, os.getpid()).atexit = False
        self.first: Optional[Tensor] = base  # until somebody has taken a tensor of it

    def _forget(self, process: int) -> None:
        # In a forked child the parent's pieces are still mapped, and known, until they go there.
        _Memory.by_address.pop(self.address, None)
        _Memory.by_inode.pop(self.inode, None)
        os.close(self.descriptor)

    def tensor(self, dtype: Any, shape: Tuple[int, ...], strides: Tuple[int, ...], offset: int) -> Tensor:
        mapping = self.mapping()
        first, self.first = self.first, None
        base = first if first is not None else _io.over_buffer(mapping, athanor.uint8, [self.size])
        return _io.share_storage(base, dtype, offset, list(shape), list(strides))


def _address_of(t: Tensor) -> int:
    return t.data_ptr() - t.storage_offset() * t.element_size()


def memory_of(t: Tensor) -> Optional[_Memory]:
    """The shared memory that the tensor lies in, if it does."""
    return _Memory.by_address.get(_address_of(t)) if t.device.type == "cpu" and t.numel() else None


def share(t: Tensor) -> _Memory:
    """Moves the tensor's values into shared memory: those of the tensor itself; views made of it before keep the old
    ones."""
    known = memory_of(t)
    if known is not None:
        return known
    values = t.detach()
    size = max(1, values.numel() * values.element_size())
    descriptor = os.memfd_create("athanor-tensor", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        memory = _Memory(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    strides = []
    step = 1
    for n in reversed(values.shape):
        strides.insert(0, step)
        step *= max(1, n)
    shared = memory.tensor(values.dtype, tuple(values.shape), tuple(strides), 0)
    shared.copy_(values)
    t.data = shared
    return memory


def share_memory_(self: Tensor) -> Tensor:
    """Moves the values into shared memory, so that processes forked from here, and those the tensor is sent to, see
    the same; returns the tensor. Other devices' tensors stay as they are."""
    if self.device.type == "cpu" and self.numel():
        share(self)
    return self


def is_shared(self: Tensor) -> bool:
    """Whether the values lie in shared memory."""
    return self.device.type != "cpu" or memory_of(self) is not None


def _rebuild(handle: Any, size: int, dtype: str, shape: Tuple[int, ...], strides: Tuple[int, ...], offset: int,
             requires_grad: bool, kind: type) -> Tensor:
    if handle is None:
        t = athanor.empty(shape, dtype=getattr(athanor, dtype))
    else:
        descriptor = handle.detach()
        memory = _Memory.by_inode.get(os.fstat(descriptor).st_ino)
        if memory is not None:
            os.close(descriptor)
        else:
            memory = _Memory(descriptor, size)
        t = memory.tensor(getattr(athanor, dtype), shape, strides, offset)
    if kind is not Tensor:
        return Tensor._make_subclass(kind, t, requires_grad)
    return t.requires_grad_() if requires_grad else t


def _reduce(t: Tensor) -> Tuple:
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not "
                           "support crossing process boundaries.  If you just want to transfer the data, call detach() "
                           "on the tensor before serializing (e.g., putting it on the queue).")
    if t.device.type != "cpu":
        return t.__reduce_ex__(4)
    name = str(t.dtype).rpartition(".")[2]
    if t.numel() == 0:
        return _rebuild, (None, 0, name, tuple(t.shape), (), 0, t.requires_grad, type(t))
    memory = share(t)
    return _rebuild, (reduction.DupFd(memory.descriptor), memory.size, name, tuple(t.shape), tuple(t.stride()),
                      t.storage_offset(), t.requires_grad, type(t))


def init_reductions() -> None:
    """Tells multiprocessing how tensors travel."""
    from athanor.nn.parameter import Parameter

    for kind in (Tensor, Parameter):
        reduction.register(kind, _reduce)
