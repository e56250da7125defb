"""Streams and events. A device is one queue in order: its streams are that queue."""
from __future__ import annotations

from typing import Any, Optional


class Stream:
    """The queue of a device. Work of all streams of a device runs in the order it was given."""

    def __init__(self, device: Any = None, priority: int = 0):
        from . import _index, _needed

        self._core = _needed().Stream(_index(device))
        self.device_index = self._core.device_index

    @property
    def device(self) -> Any:
        """The device whose queue this is."""
        import athanor

        return athanor.device("cuda", self.device_index)

    def synchronize(self) -> None:
        """Waits for all work of the device, and raises what failed in it."""
        self._core.synchronize()

    def query(self) -> bool:
        """Whether all work is done."""
        return self._core.query()

    def wait_event(self, event: "Event") -> None:
        """Work given to this stream later runs after the event; the caller does not wait."""
        self._core.wait(event._core)

    def wait_stream(self, stream: "Stream") -> None:
        """Work given to this stream later runs after what `stream` has been given."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Optional["Event"] = None) -> "Event":
        """An event behind all work given so far."""
        event = event if event is not None else Event()
        event.record(self)
        return event

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and other.device_index == self.device_index

    def __hash__(self) -> int:
        return hash(("stream", self.device_index))

    def __repr__(self) -> str:
        return f"<athanor.cuda.Stream device=cuda:{self.device_index}>"


class Event:
    """A point in a stream. With enable_timing, elapsed_time() tells the milliseconds between two."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
                 external: bool = False):
        self._enable_timing = enable_timing
        self._made: Any = None

    @property
    def _core(self) -> Any:
        # Made when it is first used: programs make events before they ask whether there is a device.
        if self._made is None:
            from . import _needed

            self._made = _needed().Event(self._enable_timing)
        return self._made

    def record(self, stream: Optional[Stream] = None) -> None:
        """The point after everything the stream, the current one unless given, has been given so far."""
        self._core.record((stream if stream is not None else current_stream())._core)

    def wait(self, stream: Optional[Stream] = None) -> None:
        """Work given to the stream later runs after the event."""
        (stream if stream is not None else current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Waits until everything before the event has run."""
        self._core.synchronize()

    def query(self) -> bool:
        """Whether everything before the event has run."""
        return self._core.query()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this event to the other. RuntimeError unless both were made with enable_timing, recorded,
        and are past."""
        return self._core.elapsed_time(end_event._core)


def current_stream(device: Any = None) -> Stream:
    """The device's queue."""
    return Stream(device)


default_stream = current_stream


def set_stream(stream: Optional[Stream]) -> None:
    """Makes the stream's device the current one."""
    from . import set_device

    if stream is not None:
        set_device(stream.device_index)


class StreamContext:
    """`with cuda.stream(s):` — the stream's device is the current one in the block."""

    def __init__(self, stream: Optional[Stream]):
        from . import device

        self.stream = stream
        self._device = device(stream.device_index if stream is not None else -1)

    def __enter__(self) -> None:
        self._device.__enter__()

    def __exit__(self, *_: Any) -> None:
        self._device.__exit__()


def stream(stream: Optional[Stream]) -> StreamContext:
    """A StreamContext of it; None changes nothing."""
    return StreamContext(stream)
