"""The profiler: what a program's ops cost, as a table and as a trace for chrome://tracing or Perfetto.

    with athanor.profiler.profile(record_shapes=True) as prof:
        with athanor.profiler.record_function("forward"):
            loss = net(x)
        loss.backward()
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")

What all threads do is recorded; times are microseconds.
"""
from __future__ import annotations

import contextlib
import enum
import functools
import os
import socket
import time
import warnings
from typing import Any, Callable, Iterable, List, Optional, Set

from ._C import _profiler

__all__ = [
    "DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "kineto_available",
    "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """What to record. Devices that ATHANOR_CUDA_ON_CPU serves are part of CPU."""

    CPU = 0
    CUDA = 1


class DeviceType(enum.Enum):
    """Where an event happened."""

    CPU = 0
    CUDA = 1


class ProfilerAction(enum.Enum):
    """What a schedule asks for in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def kineto_available() -> bool:
    """False: the profiler is the library's own."""
    return False


def supported_activities() -> Set[ProfilerActivity]:
    """What can be recorded here."""
    return {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Which steps to record: after skip_first steps, cycles of wait, warmup and active steps, repeat of them (0: until the
    end). skip_first_wait: 1 leaves out the first cycle's wait. Raises ValueError for negative numbers and for no active step."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError(f"schedule: expected wait, warmup, repeat and skip_first of at least 0 and active of at least 1, got "
                         f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}")
    cycle = wait + warmup + active

    def action_of(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"schedule: expected a step of at least 0, got {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat > 0 and step >= repeat * cycle:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action_of


def tensorboard_trace_handler(dir_name: str, worker_name: Optional[str] = None, use_gzip: bool = False) -> Callable[[Any], None]:
    """An on_trace_ready that writes each trace to a file of its own in dir_name, which is made. use_gzip compresses it."""
    os.makedirs(dir_name, exist_ok=True)
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: Any) -> None:
        path = os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json")
        prof.export_chrome_trace(path + ".gz" if use_gzip else path)

    return write


def _time_text(microseconds: float) -> str:
    for limit, scale, unit in ((1e6, 1e6, "s"), (1e3, 1e3, "ms")):
        if microseconds >= limit:
            return f"{microseconds / scale:.3f}{unit}"
    return f"{microseconds:.3f}us"


class _Costs:
    """The figures that an event and an average have in common, in microseconds and bytes."""

    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    cpu_memory_usage: int
    self_cpu_memory_usage: int
    device_time = device_time_total = self_device_time_total = cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = cuda_memory_usage = self_cuda_memory_usage = 0
    device_type = DeviceType.CPU
    is_async = is_remote = False

    @property
    def cpu_time(self) -> float:
        """Of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        return _time_text(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return _time_text(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return _time_text(self.self_cpu_time_total)


class FunctionEventAvg(_Costs):
    """The calls of one name, or of one name and one list of input shapes."""

    def __init__(self, row: Any) -> None:
        self._row = row
        self.key: str = row.name
        self.input_shapes: str = row.shapes
        self.count = row.count
        self.cpu_time_total = row.total / 1e3
        self.self_cpu_time_total = row.self / 1e3
        self.cpu_memory_usage = row.bytes
        self.self_cpu_memory_usage = row.self_bytes

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str} "
                f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>")


class Interval:
    """From start to end, in microseconds since the recording began."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start


class FunctionEvent(_Costs):
    """One call."""

    count = 1

    def __init__(self, event: Any, number: int, thread: str) -> None:
        self.id = number
        self.name: str = event.name
        self.key: str = event.name
        self.kind: str = event.kind
        self.thread: int = event.thread
        self.thread_name = thread
        self.device: str = event.device
        self.time_range = Interval(event.start / 1e3, (event.start + event.duration) / 1e3)
        self.cpu_time_total = event.duration / 1e3
        self.self_cpu_time_total = event.self / 1e3
        self.cpu_memory_usage = event.bytes
        self.self_cpu_memory_usage = event.self_bytes
        self.input_shapes: List[List[int]] = event.shapes
        # As PyTorch counts: -1 is none.
        self.sequence_nr: int = event.sequence if event.sequence else -1
        self.is_user_annotation = event.kind == "user_annotation"
        self.cpu_parent: Optional[FunctionEvent] = None
        self.cpu_children: List[FunctionEvent] = []
        self._row = _profiler.EventAverage(event.name, str(event.shapes) if event.shapes else "", 1, event.duration, event.self,
                                           event.bytes, event.self_bytes)

    def __repr__(self) -> str:
        return (f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
                f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} "
                f"cpu_children={[c.id for c in self.cpu_children]} thread={self.thread} input_shapes={self.input_shapes} "
                f"cpu_memory_usage={self.cpu_memory_usage} seq_nr={self.sequence_nr}>")


class EventList(list):
    """Events, or averages of them."""

    def __init__(self, rows: Iterable[Any] = (), profile_memory: bool = False, recorded: Any = None) -> None:
        super().__init__(rows)
        self._profile_memory = profile_memory
        self._recorded = recorded

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by: Optional[str] = None, row_limit: int = 100, **widths: Any) -> str:
        """The table that PyTorch prints. sort_by: self_cpu_time_total, cpu_time_total, cpu_time, count, cpu_memory_usage or
        self_cpu_memory_usage, largest first; None keeps the order. Raises ValueError for another. Widths of columns are taken
        from what stands in them."""
        known = {"max_src_column_width", "max_name_column_width", "max_shapes_column_width", "header", "top_level_events_only"}
        if set(widths) - known:
            raise TypeError(f"table() got an unexpected keyword argument '{min(set(widths) - known)}'")
        rows = [e for e in self if not (widths.get("top_level_events_only") and getattr(e, "cpu_parent", None))]
        text = _profiler.table([e._row for e in rows], self._profile_memory, sort_by or "", row_limit)
        return f"{widths['header']}\n{text}" if widths.get("header") else text

    def total_average(self) -> FunctionEventAvg:
        """All of them taken together, under the name Total."""
        rows = [e._row for e in self]
        return FunctionEventAvg(_profiler.EventAverage(
            "Total", "", sum(r.count for r in rows), sum(r.total for r in rows), sum(r.self for r in rows),
            sum(r.bytes for r in rows), sum(r.self_bytes for r in rows)))

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all of them, each moment once."""
        return sum(e.self_cpu_time_total for e in self)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the whole recording, from which these events are. Raises RuntimeError for averages."""
        if self._recorded is None:
            raise RuntimeError("export_chrome_trace: averages have no times; take the profile's, or that of events()")
        self._recorded.export_chrome_trace(path)


class record_function(contextlib.ContextDecorator):
    """Names what happens inside, as a context manager or a decorator. Ends in the thread it began in."""

    def __init__(self, name: str, args: Optional[str] = None) -> None:
        self.name = name
        self.args = args
        self._scopes: List[Any] = []

    def _recreate_cm(self) -> record_function:
        return record_function(self.name, self.args)

    def __enter__(self) -> record_function:
        scope = _profiler.NamedScope(self.name)
        self._scopes.append(scope)
        scope.begin()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._scopes.pop().end()


class _Recording:
    """One recording and what is asked of it."""

    def __init__(self, record_shapes: bool, profile_memory: bool) -> None:
        self.profile_memory = profile_memory
        self._profile = _profiler.Profile(record_shapes, profile_memory)

    def stop(self) -> None:
        self._profile.stop()
        if self._profile.dropped():
            warnings.warn(f"profiler: {self._profile.dropped()} events past the limit were counted, not kept")

    @functools.cached_property
    def events(self) -> EventList:
        names = self._profile.threads()
        recorded = self._profile.events()
        events = [FunctionEvent(e, i, names[e.thread]) for i, e in enumerate(recorded)]
        for event, e in zip(events, recorded):
            if e.parent >= 0:
                event.cpu_parent = events[e.parent]
                events[e.parent].cpu_children.append(event)
        return EventList(events, self.profile_memory, self)

    def key_averages(self, group_by_input_shape: bool) -> EventList:
        return EventList(map(FunctionEventAvg, self._profile.key_averages(group_by_input_shape)), self.profile_memory)

    def export_chrome_trace(self, path: str) -> None:
        if not path.endswith(".gz"):
            return self._profile.export_chrome_trace(path)
        import gzip
        import shutil

        plain = f"{path[:-3]}.{os.getpid()}"
        try:
            self._profile.export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(path, "wb") as to:
                shutil.copyfileobj(source, to)
        finally:
            if os.path.exists(plain):
                os.remove(plain)


def _warn_of_what_is_not_recorded(**wishes: Any) -> None:
    ignored = [name for name, wish in wishes.items() if wish]
    if ignored:
        warnings.warn(f"profiler: {', '.join(ignored)} is not recorded here", stacklevel=3)


class profile:
    """Records what happens between start and stop, or inside a with statement.

    Args:
        activities: what to record; CPU events are all there are.
        schedule: which steps to record, as `schedule()` makes one; `step()` says that the next begins. None: all.
        on_trace_ready: called with this object when a recording has ended.
        record_shapes: note the shapes of every op's inputs.
        profile_memory: note how many bytes every event allocated less those it freed.
        with_stack, with_flops, with_modules: not recorded; a warning says so.

    Raises:
        RuntimeError: another profile records.
    """

    def __init__(self, *, activities: Optional[Iterable[ProfilerActivity]] = None,
                 schedule: Optional[Callable[[int], ProfilerAction]] = None,
                 on_trace_ready: Optional[Callable[[Any], Any]] = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None, acc_events: bool = False,
                 use_cuda: Optional[bool] = None) -> None:
        _warn_of_what_is_not_recorded(with_stack=with_stack, with_flops=with_flops, with_modules=with_modules)
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities:
            raise ValueError("profile: expected at least one activity, got none")
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._step: Optional[record_function] = None
        self._recording: Optional[_Recording] = None  # under way
        self._recorded: Optional[_Recording] = None  # the last that ended

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begins, with the action of the first step."""
        self._change(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """Ends. A recording under way is handed to on_trace_ready."""
        self._end_step()
        if self._recording is not None:
            self._end_recording()

    def step(self) -> None:
        """Says that the next step begins."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._change(before, self.current_action)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.record_steps and self._recording is not None:
            self._step = record_function(f"ProfilerStep#{self.step_num}").__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _change(self, before: ProfilerAction, now: ProfilerAction) -> None:
        if self._recording is not None and (before == ProfilerAction.RECORD_AND_SAVE or now not in _RECORDING):
            if before != ProfilerAction.RECORD_AND_SAVE:
                warnings.warn(f"profile: the schedule asks for {now.name} after RECORD; RECORD_AND_SAVE should end a recording")
            self._end_recording()
        if now in _RECORDING and self._recording is None:
            self._recording = _Recording(self.record_shapes, self.profile_memory)

    def _end_recording(self) -> None:
        assert self._recording is not None
        self._recorded, self._recording = self._recording, None
        self._recorded.stop()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _result(self, what: str) -> _Recording:
        if self._recorded is None:
            raise AssertionError(f"Profiler must have recorded and stopped before {what}")
        return self._recorded

    def events(self) -> EventList:
        """All events of the last recording, by thread and start."""
        return self._result("events()").events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The last recording's events by name, or by name and input shapes, largest self time first."""
        return self._result("key_averages()").key_averages(group_by_input_shape)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the last recording's trace as JSON, compressed where the name ends in .gz. Raises OSError."""
        self._result("export_chrome_trace()").export_chrome_trace(path)
