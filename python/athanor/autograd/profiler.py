"""The profiler by its old names: athanor.profiler has the newer ones."""
from __future__ import annotations

from typing import Any, Optional

from ..profiler import (  # noqa: F401
    EventList, FunctionEvent, FunctionEventAvg, _Recording, _warn_of_what_is_not_recorded, record_function,
)

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class profile:
    """Records what happens inside a with statement, unless enabled is False. Arguments and errors: those of profiler.profile."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: Optional[str] = None,
                 record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
                 with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True) -> None:
        _warn_of_what_is_not_recorded(with_stack=with_stack, with_flops=with_flops, with_modules=with_modules)
        self.enabled = enabled
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self._recording: Optional[_Recording] = None
        self._ended = False

    def __enter__(self) -> profile:
        if self._recording is not None:
            raise RuntimeError("Profiler context manager is not reentrant")
        if self.enabled:
            self._recording = _Recording(self.record_shapes, self.profile_memory)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._recording is not None:
            self._recording.stop()
            self._ended = True

    def _result(self) -> _Recording:
        if self._recording is None or not self._ended:
            raise RuntimeError("Profiler didn't finish running")
        return self._recording

    @property
    def function_events(self) -> EventList:
        """All events, by thread and start."""
        return self._result().events

    def events(self) -> EventList:
        """All events, by thread and start."""
        return self._result().events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The events by name, or by name and input shapes, largest self time first."""
        return self._result().key_averages(group_by_input_shape)

    def table(self, sort_by: Optional[str] = None, row_limit: int = 100, **widths: Any) -> str:
        """The table of all events."""
        return self._result().events.table(sort_by, row_limit, **widths)

    def total_average(self) -> FunctionEventAvg:
        """All events taken together."""
        return self._result().events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, each moment once, in microseconds."""
        return self._result().events.self_cpu_time_total

    def export_chrome_trace(self, path: str) -> None:
        """Writes the trace as JSON, compressed where the name ends in .gz. Raises OSError."""
        self._result().export_chrome_trace(path)

    def __str__(self) -> str:
        return self.table() if self._ended else "<unfinished profiler_legacy.profile>"
