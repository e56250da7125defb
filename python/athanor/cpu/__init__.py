"""torch.cpu: the host as a device among others. It has one queue, the program itself."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator

from . import amp as amp


class Stream:
    """The host's only queue."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for: what the program asked for is done."""


class Event:
    """A point in the host's queue, which is always past."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing to do."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""


_stream = Stream()


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing to choose from."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


def current_stream(device: Any = None) -> Stream:
    """The host's only queue."""
    return _stream


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """The host has one queue: changes nothing."""
    yield
