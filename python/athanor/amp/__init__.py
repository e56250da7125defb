"""Automatic mixed precision: autocast and GradScaler."""
from __future__ import annotations

import functools

from .. import _C, _functions as _f

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast takes this kind of device."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    return device_type in ("cpu", "cuda")


def custom_fwd(fwd=None, *, device_type: str = "cuda", cast_inputs=None):
    """For the forward of a Function: its backward, under custom_bwd, runs in autocast's state of now. With cast_inputs, floating
    tensors among the arguments come in that dtype inside a region, and the function runs outside of it."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapped(context, *args, **keywords):
        enabled, dtype = _C._autocast_state()[:2]
        context._autocast = (enabled and cast_inputs is None, dtype)
        if cast_inputs is None or not enabled:
            return fwd(context, *args, **keywords)
        with autocast(device_type, enabled=False):
            return fwd(context, *_cast(args, cast_inputs), **_cast(keywords, cast_inputs))

    return wrapped


def custom_bwd(bwd=None, *, device_type: str = "cuda"):
    """For the backward of a Function whose forward is under custom_fwd."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapped(context, *args):
        enabled, dtype = context._autocast
        with autocast(device_type, dtype=dtype, enabled=enabled):
            return bwd(context, *args)

    return wrapped


def _cast(value, dtype):
    if isinstance(value, _C.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype is not _C.float64 else value
    if isinstance(value, dict):
        return {k: _cast(v, dtype) for k, v in value.items()}
    return type(value)(_cast(v, dtype) for v in value) if isinstance(value, (list, tuple)) else value


class autocast:  # noqa: N801
    """Inside, products, convolutions and linear layers compute in a half type; losses and their like in float32. A context
    manager and a decorator. Raises ValueError for a dtype other than bfloat16 and float16."""

    def __init__(self, device_type: str = "cpu", dtype=None, enabled: bool = True, cache_enabled: bool | None = None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in ("cpu", "cuda"):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = dtype or _C.bfloat16
        if self.fast_dtype not in (_C.bfloat16, _C.float16):
            raise ValueError(f"autocast: the dtype should be torch.bfloat16 or torch.float16, got {dtype}")
        self._enabled, self._cache = bool(enabled), cache_enabled is not False
        self._before: list = []

    def __enter__(self):
        self._before.append(_C._autocast_state())
        _C._enter_autocast(self._enabled, self.fast_dtype, self._cache)
        return self

    def __exit__(self, *_):
        _C._leave_autocast(*self._before.pop())
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def wrapped(*args, **keywords):
            with autocast(self.device, self.fast_dtype, self._enabled, self._cache):
                return function(*args, **keywords)

        return wrapped


class GradScaler:
    """Scales losses up so that small gradients of half types do not vanish, and gradients down before the step; steps
    with gradients that are not finite are left out."""

    def __init__(self, device: str = "cuda", init_scale: float = 65536.0, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True):
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._scale, self._growth_factor, self._backoff_factor = float(init_scale), growth_factor, backoff_factor
        self._growth_interval, self._enabled, self._growth_tracker = growth_interval, enabled, 0
        self._progress: dict = {}

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """What the factor is multiplied by after growth_interval good updates."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Changes get_growth_factor()."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by after a step that was left out."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Changes get_backoff_factor()."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many good updates raise the factor."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Changes get_growth_interval()."""
        self._growth_interval = new_interval

    def get_scale(self) -> float:
        """The factor; 1 if disabled."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs):
        """outputs, a tensor or nested lists of them, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _C.Tensor):
            return outputs * self._scale
        return type(outputs)(self.scale(o) for o in outputs)

    def unscale_(self, optimizer) -> None:
        """Divides the gradients by the factor. Raises RuntimeError when called twice before update()."""
        if not self._enabled:
            return
        progress = self._progress.setdefault(id(optimizer), {"stage": "ready", "found": False})
        if progress["stage"] == "unscaled":
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if progress["stage"] == "stepped":
            raise RuntimeError("unscale_() is being called after step().")
        with _no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if p.grad.dtype is _C.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    p.grad.mul_(1.0 / self._scale)
                    progress["found"] = progress["found"] or not bool(_f.isfinite(p.grad).all())
        progress["stage"] = "unscaled"

    def step(self, optimizer, *args, **keywords):
        """unscale_() unless that was done, then the step if all gradients are finite."""
        if not self._enabled:
            return optimizer.step(*args, **keywords)
        if "closure" in keywords:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        progress = self._progress.setdefault(id(optimizer), {"stage": "ready", "found": False})
        if progress["stage"] == "stepped":
            raise RuntimeError("step() has already been called since the last update().")
        if progress["stage"] == "ready":
            self.unscale_(optimizer)
        result = None if progress["found"] else optimizer.step(*args, **keywords)
        progress["stage"] = "stepped"
        return result

    def update(self, new_scale=None) -> None:
        """Lowers the factor if a step was left out, raises it after growth_interval updates without one."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._progress:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(p["found"] for p in self._progress.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._progress = {}

    def state_dict(self) -> dict:
        """The factor, how it changes, and how many updates went well; empty if disabled."""
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over what state_dict() gave."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of "
                               "GradScaler.")
        self._scale, self._growth_factor = state_dict["scale"], state_dict["growth_factor"]
        self._backoff_factor, self._growth_interval = state_dict["backoff_factor"], state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]


def _no_grad():
    from ..autograd.grad_mode import no_grad

    return no_grad()
