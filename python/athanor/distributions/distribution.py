"""What all distributions have in common."""

from __future__ import annotations

import numbers
from typing import Any, Dict, Optional, Sequence, Tuple

import athanor
from athanor import Size, Tensor

from . import constraints


def broadcast_all(*values: Any) -> Tuple[Tensor, ...]:
    """Numbers and tensors as tensors of their common shape; numbers get the dtype of a tensor among them, or the default one.

    Raises:
        ValueError: something else than numbers and tensors.
    """
    if not all(isinstance(v, (Tensor, numbers.Number)) for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                         "__torch_function__.")
    like = next((v for v in values if isinstance(v, Tensor)), None)
    options: Dict[str, Any] = {"dtype": athanor.get_default_dtype()}
    if like is not None:
        options = {"dtype": like.dtype, "device": like.device}
    tensors = [v if isinstance(v, Tensor) else athanor.tensor(v, **options) for v in values]
    return tuple(athanor.broadcast_tensors(*tensors))


class lazy_property:
    """A property that is computed when first asked for, with gradients, and kept."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with athanor.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class Distribution:
    """Samples have the shape sample_shape + batch_shape + event_shape; log_prob has one value per event.

    Raises:
        ValueError: a parameter or a value that the distribution does not allow (with validate_args, the default).
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: Dict[str, Any] = {}
    support: Any = None

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check parameters and values, unless told otherwise."""
        if value not in (True, False):
            raise ValueError("validate_args is True or False")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Sequence[int] = Size(), event_shape: Sequence[int] = Size(),
        validate_args: Optional[bool] = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                if constraints.is_dependent(constraint):
                    continue
                if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                    continue  # follows from another parameter
                value = getattr(self, name)
                if not bool(constraint.check(value).all()):
                    raise ValueError(
                        f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                        f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n"
                        f"{value}")

    @property
    def batch_shape(self) -> Size:
        """The shape of distributions side by side."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one of them."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Values without a gradient."""
        with athanor.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Values as a function of the parameters, so that they have gradients."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """sample((n,))."""
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability, or of its density, of each event."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value that is not greater."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value whose cdf is ``value``."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along the first dim."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return athanor.exp(self.entropy())

    _parameters: Tuple[str, ...] = ()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "Distribution":
        """This distribution for a larger batch, without copying parameters."""
        new = type(self).__new__(type(self)) if _instance is None else _instance
        batch_shape = Size(batch_shape)
        for name in self._parameters:
            if name in self.__dict__:
                value = self.__dict__[name]
                inner = value.shape[len(self._batch_shape):]
                new.__dict__[name] = value.expand(tuple(batch_shape) + tuple(inner))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _extended_shape(self, sample_shape: Sequence[int] = Size()) -> Size:
        return Size(tuple(sample_shape) + tuple(self._batch_shape) + tuple(self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = value.dim() - len(self._event_shape)
        if value.size()[events:] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}.")
        for i, j in zip(reversed(value.size()), reversed(tuple(self._batch_shape) + tuple(self._event_shape))):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.size()} vs "
                                 f"{Size(tuple(self._batch_shape) + tuple(self._event_shape))}.")
        support = self.support
        if support is None:
            return
        if not bool(support.check(value).all()):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                             f"within the support ({support!r}) of the distribution {self!r}, but found invalid values:\n"
                             f"{value}")

    def _check(self, value: Tensor) -> None:
        if self._validate_args:
            self._validate_sample(value)

    def __repr__(self) -> str:
        names = [n for n in self.arg_constraints if n in self.__dict__]
        shown = ", ".join(f"{n}: {p if p.numel() == 1 else p.size()}" for n, p in ((n, self.__dict__[n]) for n in names))
        return f"{self.__class__.__name__}({shown})"


class ExponentialFamily(Distribution):
    """Distributions whose density is the exponential of a product of parameters and a function of the value."""
