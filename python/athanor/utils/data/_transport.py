"""How objects travel between a loader and its workers.

A message is a pickle over a socket pair. Values of tensors and NumPy's arrays go beside it, in memory without a name
whose descriptor travels with the message: nothing is left behind, whichever process dies when, and the size of /dev/shm
does not matter. Small ones go in the message itself.
"""

from __future__ import annotations

import array
import io
import os
import pickle
import socket
import struct
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any, List, Optional, Tuple

import athanor
from athanor import Tensor
from athanor._C import _io

_HEADER = struct.Struct("<QQ")  # bytes of the pickle, bytes beside it
_IN_MESSAGE = 16384  # what goes into a message; a socket takes several before it blocks
_COPIED = 1 << 20  # up to here copying into memory at hand is cheaper than mapping
_ALIGNMENT = 64

_reading = threading.local()


class _Pickler(ForkingPickler):
    """Puts tensors and arrays aside and leaves calls that find them again in the pickle."""

    def __init__(self, file: Any, beside: "_Beside") -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._beside = beside

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is Tensor:
            return self._tensor(obj)
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray and obj.dtype.kind in "biufc" and obj.nbytes:
            values = numpy.ascontiguousarray(obj)
            return _take_array, (self._beside.add(memoryview(values).cast("B"), values), values.dtype.str, obj.shape)
        return NotImplemented

    def _tensor(self, t: Tensor) -> Tuple:
        needs_grad = t.requires_grad
        if needs_grad and not t.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor "
                "before serializing (e.g., putting it on the queue)."
            )
        values = t.detach().cpu().contiguous()
        place = -1
        if values.numel():
            size = values.element_size()
            start = values.storage_offset() * size
            memory = _io.storage_memory(values)[start : start + values.numel() * size]
            place = self._beside.add(memory, values)
        return _take_tensor, (place, str(values.dtype), tuple(values.shape), needs_grad)


class _Beside:
    """Pieces of memory one after the other, each aligned."""

    def __init__(self) -> None:
        self.pieces: List[memoryview] = []
        self.owners: List[Any] = []
        self.size = 0

    def add(self, memory: memoryview, owner: Any) -> int:
        place = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        if place > self.size:
            self.pieces.append(memoryview(bytes(place - self.size)))
        self.pieces.append(memory)
        self.owners.append(owner)
        self.size = place + len(memory)
        return place


class _Reader:
    """The memory beside the pickle that is being read: a descriptor, or bytes."""

    def __init__(self, size: int, descriptor: Optional[int], content: Optional[memoryview]) -> None:
        self._descriptor = descriptor
        self._content = content
        self._mapping = None
        if descriptor is not None and size > _COPIED:
            self._mapping = _io.SharedMapping(descriptor, size)

    def fill(self, memory: memoryview, place: int) -> None:
        if self._content is not None:
            memory[:] = self._content[place : place + len(memory)]
            return
        done = 0
        while done < len(memory):
            n = os.preadv(self._descriptor, [memory[done:]], place + done)  # type: ignore[arg-type]
            if n == 0:
                raise EOFError("the memory of a batch is shorter than its message says")
            done += n

    def tensor(self, place: int, dtype: Any, shape: tuple) -> Tensor:
        if place >= 0 and self._mapping is not None:
            return self._mapping.tensor(dtype, shape, place)
        t = athanor.empty(shape, dtype=dtype)
        if place >= 0:
            self.fill(_io.storage_memory(t)[: t.numel() * t.element_size()], place)
        return t


def _take_tensor(place: int, dtype: str, shape: tuple, needs_grad: bool) -> Tensor:
    t = _reading.reader.tensor(place, getattr(athanor, dtype.rpartition(".")[2]), shape)
    return t.requires_grad_() if needs_grad else t


def _take_array(place: int, dtype: str, shape: tuple) -> Any:
    import numpy

    values = numpy.empty(shape, dtype)
    _reading.reader.fill(memoryview(values).cast("B"), place)
    return values


def _write_all(descriptor: int, pieces: List[memoryview]) -> None:
    place = 0
    while pieces:
        n = os.pwritev(descriptor, pieces[:512], place)
        place += n
        while pieces and n >= len(pieces[0]):
            n -= len(pieces.pop(0))
        if n:
            pieces[0] = pieces[0][n:]


class Message:
    """An object made ready to be sent; sending may be tried again."""

    def __init__(self, obj: Any) -> None:
        beside = _Beside()
        file = io.BytesIO()
        _Pickler(file, beside).dump(obj)
        pickled = file.getbuffer()
        self._descriptor: Optional[int] = None
        if len(pickled) + beside.size <= _IN_MESSAGE:
            self._content = b"".join([_HEADER.pack(len(pickled), beside.size), pickled, *beside.pieces])
            return
        header = _HEADER.pack(len(pickled), beside.size)
        if len(pickled) <= _IN_MESSAGE:
            self._content = header + pickled
        else:  # after the values
            self._content = header
            beside.pieces.append(pickled)
        self._descriptor = os.memfd_create("athanor-batch", os.MFD_CLOEXEC)
        try:
            _write_all(self._descriptor, beside.pieces)
        except BaseException:
            self.close()
            raise

    def send(self, sock: socket.socket, flags: int = 0) -> None:
        """Raises BlockingIOError if the socket is non-blocking, or flags say so, and full."""
        if self._descriptor is None:
            sock.send(self._content, flags)
        else:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._descriptor]))
            sock.sendmsg([self._content], [rights], flags)
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def receive(sock: socket.socket) -> Any:
    """The next object. Raises EOFError when the other side is gone."""
    try:
        content, descriptors, _, _ = socket.recv_fds(sock, _HEADER.size + _IN_MESSAGE, 1)
    except ConnectionResetError:
        raise EOFError from None
    if not content:
        raise EOFError
    descriptor = descriptors[0] if descriptors else None
    try:
        pickled_size, beside = _HEADER.unpack_from(content)
        body = memoryview(content)[_HEADER.size :]
        if descriptor is None:
            pickled: Any = body[:pickled_size]
            reader = _Reader(beside, None, body[pickled_size:])
        else:
            reader = _Reader(beside, descriptor, None)
            pickled = body
            if not len(body):
                pickled = bytearray(pickled_size)
                reader.fill(memoryview(pickled), beside)
        before = getattr(_reading, "reader", None)
        _reading.reader = reader
        try:
            return pickle.loads(pickled)
        finally:
            _reading.reader = before
    finally:
        if descriptor is not None:
            os.close(descriptor)


def channel() -> Tuple[socket.socket, socket.socket]:
    """Both ends of a connection that keeps messages apart."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.settimeout(None)  # whatever socket.setdefaulttimeout says
    return ends
