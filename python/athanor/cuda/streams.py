"""Streams and events. A device is one queue in order: its streams are that queue."""
from __future__ import annotations

import time
from typing import Any, Optional


class Stream:
    """The queue of a device. Work of all streams of a device runs in the order it was given."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any):
        from . import _index, current_device

        index = _index(device)
        self.device_index = current_device() if index < 0 else index

    @property
    def device(self) -> Any:
        """The device whose queue this is."""
        import athanor

        return athanor.device("cuda", self.device_index)

    def synchronize(self) -> None:
        """Waits for all work of the device."""
        from . import synchronize

        synchronize(self.device_index)

    def query(self) -> bool:
        """Whether the queue has nothing left to do; waits for it."""
        self.synchronize()
        return True

    def wait_stream(self, stream: "Stream") -> None:
        """Work given to this stream later runs after what `stream` has been given."""
        if stream.device_index != self.device_index:
            stream.synchronize()

    def wait_event(self, event: "Event") -> None:
        """Work given later runs after the event."""
        event.wait(self)

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
    """A place in a stream. With enable_timing, elapsed_time() tells the milliseconds between two."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any):
        self.enable_timing = enable_timing
        self._stream: Optional[Stream] = None
        self._time = 0.0

    def record(self, stream: Optional[Stream] = None) -> None:
        """Marks the stream's end as of now. With timing it waits for the work before it."""
        self._stream = stream if stream is not None else current_stream()
        if self.enable_timing:
            self._stream.synchronize()
            self._time = time.perf_counter()

    def wait(self, stream: Optional[Stream] = None) -> None:
        """Work given to the stream later runs after the event."""
        if self._stream is not None:
            (stream if stream is not None else current_stream()).wait_stream(self._stream)

    def synchronize(self) -> None:
        """Waits for the work before the event."""
        if self._stream is not None:
            self._stream.synchronize()

    def query(self) -> bool:
        """Whether the work before the event is done; waits for it."""
        self.synchronize()
        return True

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this event to the other. RuntimeError unless both were recorded with enable_timing."""
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._stream is None or end_event._stream is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1000.0


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
