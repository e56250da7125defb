"""The stores by which processes find each other. TCPStore speaks PyTorch's protocol: either side may be PyTorch's."""
from __future__ import annotations

import datetime
from typing import Any, List, Optional

from .._C import _distributed as _core
from .._C._distributed import Store
from ._groups import Timeout, milliseconds

_FIVE_MINUTES = datetime.timedelta(seconds=300)


class _Kind(type):
    """Calling the class makes one of C++'s stores, which are its instances."""

    def __call__(cls, *args: Any, **keywords: Any) -> Store:
        return cls._make(*args, **keywords)

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, cls._kind)


class TCPStore(metaclass=_Kind):
    """A store over TCP; the process with is_master serves it. port 0: a free one, see `.port`. Waits for `world_size`
    clients if wait_for_workers. DistNetworkError when nobody answers or the port is taken."""

    _kind = _core._TCPStore

    @staticmethod
    def _make(host_name: str, port: int, world_size: Optional[int] = None, is_master: bool = False,
              timeout: Timeout = _FIVE_MINUTES, wait_for_workers: bool = True, multi_tenant: bool = False,
              master_listen_fd: Optional[int] = None, use_libuv: bool = True, secret: str = "") -> Store:
        size = world_size if world_size is not None and world_size > 0 else None
        return _core._tcp_store(host_name, port, size, is_master, milliseconds(timeout), wait_for_workers, multi_tenant,
                                master_listen_fd, secret)


class FileStore(metaclass=_Kind):
    """A store in a file that all processes reach. DistStoreError for a file that an earlier job left."""

    _kind = _core._FileStore

    @staticmethod
    def _make(file_name: str, world_size: int = -1, timeout: Timeout = _FIVE_MINUTES) -> Store:
        return _core._file_store(str(file_name), milliseconds(timeout))


class HashStore(metaclass=_Kind):
    """A store for the threads of one process."""

    _kind = _core._HashStore

    @staticmethod
    def _make(timeout: Timeout = _FIVE_MINUTES) -> Store:
        return _core._hash_store(milliseconds(timeout))


class PrefixStore(metaclass=_Kind):
    """Another store, with a prefix before every key."""

    _kind = _core._PrefixStore

    @staticmethod
    def _make(prefix: str, store: Store) -> Store:
        return _core._prefix_store(prefix, store)


def _wait(self: Store, keys: List[str], timeout: Timeout = None) -> None:
    """Waits until all of the keys exist; DistStoreError when the timeout, the store's own unless given, passes."""
    self._wait(list(keys), milliseconds(timeout))


def _set_timeout(self: Store, timeout: Timeout) -> None:
    """Of every wait from now on."""
    self._set_timeout_ms(milliseconds(timeout))


Store.wait = _wait
Store.set_timeout = _set_timeout
Store.timeout = property(lambda self: datetime.timedelta(milliseconds=self._timeout_ms),
                         doc="How long waits last if no other time is named, as a timedelta.")
