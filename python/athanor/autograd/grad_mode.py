"""Switches of recording, as context managers and decorators."""
from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, overload

from .. import _C

_F = TypeVar("_F", bound=Callable[..., Any])
_M = TypeVar("_M", bound="_Mode")


class _Mode:
    """Base of the modes: `with mode():`, `@mode()` and, where it takes no argument, `@mode`."""

    _before: Any

    def __call__(self, function: _F) -> _F:
        import inspect

        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapped(*args, **keywords):
            with self._clone():
                return function(*args, **keywords)

        return wrapped  # type: ignore[return-value]

    def _wrap_generator(self, function):
        # The mode holds while the generator runs, not between its values.
        @functools.wraps(function)
        def wrapped(*args, **keywords):
            generator = function(*args, **keywords)
            send, value = generator.send, None
            while True:
                try:
                    with self._clone():
                        item = send(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    send, value = generator.send, (yield item)
                except GeneratorExit:
                    with self._clone():
                        generator.close()
                    raise
                except BaseException as error:
                    send, value = generator.throw, error

        return wrapped

    def _clone(self):
        return self.__class__()

    def _switch(self) -> None:
        """Sets what the mode stands for, in this thread."""
        raise NotImplementedError

    def __enter__(self: _M) -> _M:
        self._before = _C._tape_state()
        self._switch()
        return self

    def __exit__(self, *_: Any) -> None:
        _C._set_tape_state(*self._before)


class _PlainMode(_Mode):
    @overload
    def __new__(cls, function: _F) -> _F: ...  # type: ignore[misc]
    @overload
    def __new__(cls: type[_M], function: None = None) -> _M: ...
    def __new__(cls, function: Any = None) -> Any:
        instance = super().__new__(cls)
        return instance if function is None else instance(function)


class no_grad(_PlainMode):
    """Calls are not recorded."""

    def _switch(self):
        _C._set_grad_enabled(False)


class enable_grad(_PlainMode):
    """Calls are recorded, inside no_grad too."""

    def _switch(self):
        _C._set_grad_enabled(True)


class set_grad_enabled(_Mode):
    """Recording on or off: at once as a function, for its block as a context manager."""

    def __init__(self, mode: bool) -> None:
        self._before = _C._tape_state()
        self.mode = mode
        _C._set_grad_enabled(bool(mode))

    def __call__(self, function: _F) -> _F:
        _C._set_tape_state(*self._before)
        return super().__call__(function)

    def _clone(self):
        return self.__class__(self.mode)

    def __enter__(self: _M) -> _M:
        self._switch()
        return self

    def _switch(self):
        _C._set_grad_enabled(bool(self.mode))


class inference_mode(_Mode):
    """No recording, and tensors made here stay outside of autograd for ever."""

    def __new__(cls, mode: Any = True):
        if isinstance(mode, bool):
            return super().__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def _clone(self):
        return self.__class__(self.mode)

    def _switch(self):
        if self.mode:
            _C._set_tape_state(False, True)
        else:
            _C._set_tape_state(True, False)


class set_detect_anomaly:
    """Anomaly mode on or off: backward names the forward call behind an error and stops at NaN."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self._before = _C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled()
        _C._set_anomaly(mode, check_nan)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _C._set_anomaly(*self._before)
        return False


class detect_anomaly(set_detect_anomaly):
    """Anomaly mode for a block."""

    def __init__(self, check_nan: bool = True):
        super().__init__(True, check_nan)
