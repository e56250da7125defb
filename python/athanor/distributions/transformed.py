"""Distributions of functions of another's values."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

import athanor
from athanor import Size, Tensor

from . import constraints
from .continuous import Independent, Normal
from .distribution import Distribution
from .transforms import AffineTransform, ExpTransform, Transform

__all__ = ["LogNormal", "TransformedDistribution"]


class TransformedDistribution(Distribution):
    """transforms, one after another, of the values of base_distribution."""

    arg_constraints: dict = {}

    def __init__(
        self, base_distribution: Distribution, transforms: Union[Transform, List[Transform]],
        validate_args: Optional[bool] = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        events = max([t.event_dim for t in self.transforms], default=0)
        more = events - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        super().__init__(self.base_dist.batch_shape, self.base_dist.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "TransformedDistribution":
        new = type(self).__new__(type(self)) if _instance is None else _instance
        new.base_dist = self.base_dist.expand(batch_shape)
        new.transforms = self.transforms
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:  # type: ignore[override]
        # An affine function of the reals is real; of anything else it has the parameters' bounds.
        if not self.transforms:
            return self.base_dist.support
        if all(isinstance(t, AffineTransform) for t in self.transforms):
            real = isinstance(self.base_dist.support, type(constraints.real))
            support = constraints.real if real else None
        else:
            support = self.transforms[-1].codomain
            if isinstance(self.transforms[-1], AffineTransform):
                support = None
        n = len(self._event_shape)
        return constraints.independent(support, n) if support is not None and n else support

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with athanor.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        events = len(self._event_shape)
        result: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform._invert(y)
            change = transform.log_abs_det_jacobian(x, y)
            for _ in range(events - transform.event_dim):
                change = change.sum(-1)
            result = result - change
            y = x
        return result + self.base_dist.log_prob(y)

    def _rising(self) -> Any:
        """1 where the value grows with the base's, -1 where it falls."""
        rising: Any = 1
        for transform in self.transforms:
            if isinstance(transform, AffineTransform):
                scale = transform.scale
                rising = rising * (scale.sign() if isinstance(scale, Tensor) else (1 if scale > 0 else -1))
        return rising

    def cdf(self, value: Tensor) -> Tensor:
        # The base checks its own value: the edges of the support, where the logarithm is infinite, are allowed.
        for transform in reversed(self.transforms):
            value = transform._invert(value)
        return self._rising() * (self.base_dist.cdf(value) - 0.5) + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._rising() * (value - 0.5) + 0.5))


class LogNormal(TransformedDistribution):
    """exp of a normal value of mean loc and standard deviation scale."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        return self.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Tensor:
        return self.base_dist.scale  # type: ignore[attr-defined]

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
