"""Distributions of whole numbers."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import athanor
from athanor import Size, Tensor
from athanor.nn import functional as F

from . import constraints
from .distribution import Distribution, ExponentialFamily, broadcast_all, lazy_property

__all__ = ["Bernoulli", "Categorical", "Geometric", "OneHotCategorical", "OneHotCategoricalStraightThrough"]


def _clamped(probs: Tensor) -> Tensor:
    eps = athanor.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def _one_of_two(probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class _OfProbsOrLogits(Distribution):
    """Either of the two parameters is given, the other follows."""

    _parameters = ("probs", "logits")

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self) -> Size:
        return self._param.size()


class _OfOneChance(_OfProbsOrLogits):
    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        _one_of_two(probs, logits)
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
        else:
            (self.logits,) = broadcast_all(logits)
        super().__init__(self._param.size(), validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """log(p / (1 - p))."""
        p = _clamped(self.probs)
        return athanor.log(p) - athanor.log1p(-p)

    @lazy_property
    def probs(self) -> Tensor:
        """The chance of a 1."""
        return athanor.sigmoid(self.logits)


class Bernoulli(_OfOneChance, ExponentialFamily):
    """1 with probability probs, else 0. Give probs or logits."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs.dtype).masked_fill(self.probs == 0.5, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with athanor.no_grad():
            return athanor.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = athanor.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + tuple(self._batch_shape)) if expand else values


class Geometric(_OfOneChance):
    """How many trials fail before one with probability probs succeeds."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Optional[bool] = None) -> None:
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            raise ValueError(f"Expected parameter probs of distribution {self!r} to be positive but found invalid "
                             f"values:\n{self.probs}")

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return athanor.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with athanor.no_grad():
            u = athanor.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
            return (u.clamp(min=athanor.finfo(u.dtype).tiny).log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.clone().masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Categorical(_OfProbsOrLogits):
    """0 … K-1 with probabilities in the last dim of probs, which need not sum to one, or of softmax(logits)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self, probs: Optional[Tensor] = None, logits: Optional[Tensor] = None, validate_args: Optional[bool] = None
    ) -> None:
        _one_of_two(probs, logits)
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            assert logits is not None
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = self._param.size()[-1]
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return athanor.log(_clamped(self.probs))

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return F.softmax(self.logits, dim=-1)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "Categorical":
        new = super().expand(batch_shape, _instance)
        assert isinstance(new, Categorical)
        new._num_events = self._num_events
        return new

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return athanor.full(self._batch_shape, float("nan"), dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = Size(sample_shape)
        with athanor.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            picked = athanor.multinomial(rows, shape.numel(), True).t()
            return picked.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        value = value.long().unsqueeze(-1)
        value, logits = athanor.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=athanor.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = athanor.arange(self._num_events, dtype=athanor.long, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + tuple(self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """As Categorical; samples are vectors with a one at the number's place."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Optional[Tensor] = None, logits: Optional[Tensor] = None, validate_args: Optional[bool] = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "OneHotCategorical":
        new = type(self).__new__(type(self)) if _instance is None else _instance
        new._categorical = self._categorical.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def probs(self) -> Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return F.one_hot(self._categorical.mode, self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @property
    def param_shape(self) -> Size:
        return self._categorical.param_shape

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return F.one_hot(self._categorical.sample(sample_shape), self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = athanor.eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n,) + tuple(self._batch_shape) + (n,)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """rsample gives the same values, with the gradient of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
