"""Distributions of real numbers and vectors."""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

import athanor
from athanor import Size, Tensor

from . import constraints
from .distribution import Distribution, ExponentialFamily, broadcast_all

__all__ = ["Cauchy", "Exponential", "Gumbel", "HalfNormal", "Independent", "Laplace", "MultivariateNormal", "Normal", "Uniform"]


class _LocationScale(Distribution):
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample = True
    _parameters = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: Optional[bool] = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def _uniform(self, sample_shape: Sequence[int]) -> Tensor:
        """Values of (0, 1)."""
        u = athanor.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        eps = athanor.finfo(u.dtype)
        return u.clamp(min=eps.tiny, max=1 - eps.eps / 2)


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution of mean loc and standard deviation scale."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        noise = athanor.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return 0.5 * (1 + athanor.erf((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * athanor.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + athanor.log(self.scale)


class Laplace(_LocationScale):
    """exp(-|x - loc| / scale) / (2 scale)."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return -athanor.log(2 * self.scale) - athanor.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * athanor.expm1(-distance.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        middle = value - 0.5
        return self.loc - self.scale * middle.sign() * athanor.log1p(-2 * middle.abs())

    def entropy(self) -> Tensor:
        return 1 + athanor.log(2 * self.scale)


class Cauchy(_LocationScale):
    """The ratio of two normal values, scaled and moved; it has no mean."""

    @property
    def mean(self) -> Tensor:
        return athanor.full_like(self.loc, float("nan"))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return athanor.full_like(self.loc, float("inf"))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return athanor.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return athanor.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


_EULER = 0.57721566490153286060


class Gumbel(_LocationScale):
    """The distribution of the greatest of many values."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * _EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return athanor.exp(-athanor.exp((self.loc - value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * athanor.log(-athanor.log(value))

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER)


class _OfScale(Distribution):
    support: Any = constraints.nonnegative
    has_rsample = True


class Exponential(_OfScale, ExponentialFamily):
    """rate exp(-rate x)."""

    arg_constraints = {"rate": constraints.positive}
    _parameters = ("rate",)

    def __init__(self, rate: Any, validate_args: Optional[bool] = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return athanor.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return athanor.empty(shape, dtype=self.rate.dtype, device=self.rate.device).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return 1 - athanor.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -athanor.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - athanor.log(self.rate)


class HalfNormal(_OfScale):
    """The absolute value of a normal value of mean 0."""

    arg_constraints = {"scale": constraints.positive}
    _parameters = ("scale",)

    def __init__(self, scale: Any, validate_args: Optional[bool] = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.size(), validate_args=validate_args)

    def _normal(self) -> Normal:
        return Normal(athanor.zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return athanor.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._normal().rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        result = self._normal().log_prob(value) + math.log(2)
        return athanor.where(value >= 0, result, -float("inf"))

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return 2 * self._normal().cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self._normal().icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self._normal().entropy() - math.log(2)


class Uniform(Distribution):
    """All values of [low, high) alike."""

    has_rsample = True
    _parameters = ("low", "high")

    def __init__(self, low: Any, high: Any, validate_args: Optional[bool] = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.size(), validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError("Uniform is not defined when low>= high")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:  # type: ignore[override]
        return constraints.interval(self.low, self.high)

    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        u = athanor.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        inside = (self.low <= value) & (value < self.high)
        return athanor.log(inside.to(self.low.dtype)) - athanor.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return athanor.log(self.high - self.low)


class Independent(Distribution):
    """Another distribution whose last reinterpreted_batch_ndims batch dims are one event."""

    arg_constraints: dict = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: Optional[bool] = None
    ) -> None:
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                             f"actual {reinterpreted_batch_ndims} vs {len(batch)}")
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:cut], tuple(batch[cut:]) + tuple(base_distribution.event_shape), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "Independent":
        events = self._event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand(Size(tuple(batch_shape) + tuple(events)))
        new = Independent(base, self.reinterpreted_batch_ndims, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:  # type: ignore[override]
        base = self.base_dist.support
        n = self.reinterpreted_batch_ndims
        return constraints.independent(base, n) if base is not None and n else base

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def _summed(self, values: Tensor) -> Tensor:
        n = self.reinterpreted_batch_ndims
        return values.sum(dim=tuple(range(-n, 0))) if n else values

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MultivariateNormal(Distribution):
    """Normal vectors of mean loc (*, n) and one of: covariance_matrix, precision_matrix, scale_tril (*, n, n), the last of
    which is the lower triangular L of the covariance L Lᵀ."""

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Optional[Tensor] = None, precision_matrix: Optional[Tensor] = None,
        scale_tril: Optional[Tensor] = None, validate_args: Optional[bool] = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        assert matrix is not None
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = athanor.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        matrix = matrix.expand(tuple(batch) + tuple(matrix.shape[-2:]))
        self.loc = loc.expand(tuple(batch) + (-1,))
        self._given = name
        setattr(self, "_" + name, matrix)
        checked = self._validate_args if validate_args is None else validate_args
        if checked and not bool(self.arg_constraints[name].check(matrix).all()):
            raise ValueError(f"Expected parameter {name} ({type(matrix).__name__} of shape {tuple(matrix.shape)}) of "
                             f"distribution MultivariateNormal(loc: {self.loc.size()}, {name}: {matrix.size()}) to satisfy "
                             f"the constraint {self.arg_constraints[name]!r}, but found invalid values:\n{matrix}")
        if name == "scale_tril":
            self._tril = matrix
        elif name == "covariance_matrix":
            self._tril = athanor.linalg.cholesky(matrix)
        else:
            self._tril = athanor.linalg.cholesky(athanor.linalg.inv(matrix))
        super().__init__(batch, self.loc.shape[-1:], validate_args=False)
        self._validate_args = checked
        if checked and not bool(constraints.real_vector.check(self.loc).all()):
            raise ValueError(f"Expected parameter loc (Tensor of shape {tuple(self.loc.shape)}) of distribution {self!r} to "
                             f"satisfy the constraint {constraints.real_vector!r}, but found invalid values:\n{self.loc}")

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "MultivariateNormal":
        n = self._event_shape[0]
        loc = self.loc.expand(tuple(batch_shape) + (n,))
        return MultivariateNormal(loc, scale_tril=self._tril.expand(tuple(batch_shape) + (n, n)), validate_args=False)

    @property
    def scale_tril(self) -> Tensor:
        return self._tril

    @property
    def covariance_matrix(self) -> Tensor:
        return self._tril @ self._tril.mT if self._given != "covariance_matrix" else self._covariance_matrix

    @property
    def precision_matrix(self) -> Tensor:
        return athanor.linalg.inv(self.covariance_matrix) if self._given != "precision_matrix" else self._precision_matrix

    _covariance_matrix: Tensor
    _precision_matrix: Tensor

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._tril.pow(2).sum(-1)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        noise = athanor.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_volume(self) -> Tensor:
        return self._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        difference = value - self.loc
        tril = self._tril.expand(tuple(difference.shape) + tuple(self._tril.shape[-1:]))
        distance = athanor.linalg.solve(tril, difference.unsqueeze(-1)).squeeze(-1).pow(2).sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._log_volume()

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_volume()

    def __repr__(self) -> str:
        matrix = getattr(self, "_" + self._given)
        return f"MultivariateNormal(loc: {self.loc.size()}, {self._given}: {matrix.size()})"
