"""Differentiable functions with an inverse, for TransformedDistribution."""

from __future__ import annotations

import math
from typing import Any, List, Sequence

import athanor
from athanor import Tensor
from athanor.nn import functional as F

from . import constraints

__all__ = ["AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform", "TanhTransform",
           "Transform"]


class Transform:
    """t(x), t.inv(y) and log_abs_det_jacobian(x, y), the logarithm of |dy/dx|. Subclasses write _call and _inverse.

    With cache_size=1 the inverse of the last result is the very value it was made of.
    """

    bijective = True
    domain: Any = constraints.real
    codomain: Any = constraints.real
    event_dim = 0

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._last: Any = (None, None)

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        if self._last[0] is not x:
            self._last = (x, self._call(x))
        return self._last[1]

    def _invert(self, y: Tensor) -> Tensor:
        if self._cache_size and self._last[1] is y:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = (x, y)
        return x

    @property
    def inv(self) -> "Transform":
        """The inverse."""
        return _Inverse(self)

    def with_cache(self, cache_size: int = 1) -> "Transform":
        """This transform with such a cache."""
        import copy

        new = copy.copy(self)
        new._cache_size = cache_size
        new._last = (None, None)
        return new

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"


class _Inverse(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._transform = transform
        self.domain, self.codomain, self.event_dim = transform.codomain, transform.domain, transform.event_dim

    def __call__(self, x: Tensor) -> Tensor:
        return self._transform._invert(x)

    def _invert(self, y: Tensor) -> Tensor:
        return self._transform(y)

    @property
    def inv(self) -> Transform:
        return self._transform

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._transform.log_abs_det_jacobian(y, x)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._transform!r})"


class ExpTransform(Transform):
    """exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """x ** exponent."""

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else athanor.tensor(float(exponent))

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        eps = athanor.finfo(x.dtype)
        return athanor.clamp(athanor.sigmoid(x), min=eps.tiny, max=1.0 - eps.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        eps = athanor.finfo(y.dtype)
        y = y.clamp(min=eps.tiny, max=1.0 - eps.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(Transform):
    """tanh(x). Inverting a result near ±1 loses digits: use cache_size=1 or keep x."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return athanor.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh²) without its cancellation
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AffineTransform(Transform):
    """loc + scale x; events of event_dim dims."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc = loc
        self.scale = scale
        self.event_dim = event_dim

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else athanor.full_like(x, float(self.scale))
        result = scale.abs().log()
        if self.event_dim:
            result = result.expand(x.shape).flatten(x.dim() - self.event_dim).sum(-1)
            return result
        return result.expand(x.shape)


class ComposeTransform(Transform):
    """Transforms one after another."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts: List[Transform] = list(parts)
        self.event_dim = max([p.event_dim for p in self.parts], default=0)
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._invert(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = 0
        for part in self.parts:
            following = part(x)
            term = part.log_abs_det_jacobian(x, following)
            extra = self.event_dim - part.event_dim
            total = total + (term.flatten(term.dim() - extra).sum(-1) if extra else term)
            x = following
        return total if isinstance(total, Tensor) else athanor.zeros_like(x)

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(repr(p) for p in self.parts) + "\n)"
