"""Future: a value that comes later, with callbacks; torch.futures."""
from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional


class Future:
    """Set once, by set_result or set_exception. Thread-safe."""

    def __init__(self, *, devices: Any = None):
        self._changed = threading.Condition()
        self._set = False
        self._value: Any = None
        self._error: Optional[BaseException] = None
        self._callbacks: List[Callable[[Future], Any]] = []
        self._ask: Optional[Callable[[], Any]] = None
        self._asked: Optional[Callable[[], bool]] = None
        self._asking = threading.Lock()

    @classmethod
    def _of(cls, ask: Callable[[], Any], done: Callable[[], bool]) -> "Future":
        """A future of something that C++ works on: ask() waits for it. Callbacks run in the thread that waits."""
        future = cls()
        future._ask, future._asked = ask, done
        return future

    def done(self) -> bool:
        """Whether there is a value or an exception."""
        return self._set or (self._asked is not None and self._asked())

    def wait(self) -> Any:
        """The value, when it is there; raises the exception that was set."""
        if self._ask is not None and not self._set:
            with self._asking:
                if not self._set:
                    self._fetch()
        with self._changed:
            while not self._set:
                self._changed.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def _fetch(self) -> None:
        try:
            value = self._ask()
        except Exception as error:
            self._settle(None, error)
        else:
            self._settle(value, None)

    def value(self) -> Any:
        """The value of a future that is done. RuntimeError before."""
        if not self.done():
            raise RuntimeError("value: the future is not done; wait() waits for it")
        return self.wait()

    def _settle(self, value: Any, error: Optional[BaseException]) -> bool:
        with self._changed:
            if self._set:
                return False
            self._value, self._error, self._set = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)
        return True

    def set_result(self, result: Any) -> None:
        """RuntimeError if there is a value or an exception already."""
        if not self._settle(result, None):
            raise RuntimeError("Future already completed; set_result may be called once")

    def set_exception(self, result: BaseException) -> None:
        """wait() raises it. RuntimeError if there is a value or an exception already."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        if not self._settle(None, result):
            raise RuntimeError("Future already completed; set_exception may be called once")

    def add_done_callback(self, callback: Callable[["Future"], Any]) -> None:
        """Calls callback(self) when there is a value: at once if so already. Its exceptions are reported and dropped."""

        def quiet(future: Future) -> None:
            try:
                callback(future)
            except Exception:
                import sys
                import traceback

                print("Got the following error when running the callback:", file=sys.stderr)
                traceback.print_exc()

        self._when_done(quiet)

    def _when_done(self, callback: Callable[["Future"], Any]) -> None:
        with self._changed:
            if not self._set:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[["Future"], Any]) -> "Future":
        """A future of callback(self)."""
        result = Future._of(lambda: callback(self._waited()), self.done) if self._ask is not None else Future()
        if self._ask is None:

            def go_on(future: Future) -> None:
                try:
                    value = callback(future)
                except Exception as error:
                    result._settle(None, error)
                else:
                    result._settle(value, None)

            self._when_done(go_on)
        return result

    def _waited(self) -> "Future":
        try:
            self.wait()
        except Exception:  # the callback asks for it
            pass
        return self


def collect_all(futures: List[Future]) -> Future:
    """A future of the list of futures, done when all are."""
    result = Future._of(lambda: [f._waited() for f in futures], lambda: all(f.done() for f in futures))
    return result


def wait_all(futures: List[Future]) -> List[Any]:
    """The values of all."""
    return [f.wait() for f in futures]
