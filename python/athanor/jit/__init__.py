"""fork and wait: parts of a computation at once, on a pool of threads. Programs stay as they are: script and trace give
back what they are given, and run it as Python."""
from __future__ import annotations

from typing import Any, Callable

from .. import _C
from ..futures import Future as _PlainFuture


class Future:
    """What fork returns. wait() may be asked by several, several times."""

    __slots__ = ("_task",)

    def __init__(self, task: _C._ForkTask):
        self._task = task

    def wait(self) -> Any:
        """The result; raises what the function raised, with its traceback. Runs the function if nobody has begun it, else
        sleeps until it has ended."""
        return self._task.wait()

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._task.done()

    def value(self) -> Any:
        """The result of a task that has ended."""
        return self._task.wait()

    def then(self, callback: Callable[["Future"], Any]) -> _PlainFuture:
        """A future of callback(self), which runs in the thread that waits for it."""
        return _PlainFuture._of(self._task.wait, self._task.done).then(lambda _: callback(self))

    def __repr__(self) -> str:
        return f"<athanor.jit.Future {'done' if self.done() else 'pending'}>"


_drains = False


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """Starts func(*args, **kwargs) on another thread. Ops of several tasks run at once; Python's own lines take turns.
    The task has the grad mode of this place, and what it computes is recorded as if computed here. It may fork and wait
    itself, to any depth."""
    if not callable(func):
        raise TypeError(f"fork: expected something to call, got {type(func).__name__}")
    global _drains
    if not _drains:
        import atexit

        # No task may find the interpreter gone.
        atexit.register(_C._wait_for_forked)
        _drains = True
    return Future(_C._fork(func, *args, **kwargs))


def wait(future: Any) -> Any:
    """The result of what fork started."""
    return future.wait()


_fork, _wait = fork, wait


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Gives obj back: it runs as Python."""
    return obj


def trace(func: Any, *_: Any, **__: Any) -> Any:
    """Gives func back: it runs as Python."""
    return func


def ignore(fn: Any = None, **_: Any) -> Any:
    """Gives fn back."""
    return fn if callable(fn) else lambda f: f


def unused(fn: Any) -> Any:
    """Gives fn back."""
    return fn


def export(fn: Any) -> Any:
    """Gives fn back."""
    return fn


def is_scripting() -> bool:
    """Always false."""
    return False


def is_tracing() -> bool:
    """Always false."""
    return False
