"""The Kullback-Leibler divergence of two distributions."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Tuple, Type

import athanor
from athanor import Tensor
from athanor.nn import functional as F

from .continuous import Cauchy, Exponential, HalfNormal, Independent, Laplace, MultivariateNormal, Normal, Uniform
from .discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from .distribution import Distribution
from .transformed import LogNormal, TransformedDistribution

__all__ = ["kl_divergence", "register_kl"]

_Function = Callable[[Any, Any], Tensor]
_registered: Dict[Tuple[Type[Distribution], Type[Distribution]], _Function] = {}


def register_kl(type_p: Type[Distribution], type_q: Type[Distribution]) -> Callable[[_Function], _Function]:
    """A decorator: the function gives kl_divergence(p, q) for these classes and those derived from them.

    Raises:
        TypeError: not classes of distributions.
    """
    for kind in (type_p, type_q):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise TypeError(f"Expected a class derived from Distribution but got {kind}")

    def keep(function: _Function) -> _Function:
        _registered[type_p, type_q] = function
        return function

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """∫ p log(p / q), of shape batch_shape.

    Raises:
        NotImplementedError: nothing was registered for these classes.
    """
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            function = _registered.get((kind_p, kind_q))
            if function is not None:
                return function(p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                              f"{type(q).__name__}")


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p._normal(), q._normal())


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    # What is done to both changes nothing.
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of distributions transformed in different ways")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    distance = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return distance.log() - (4 * p.scale * q.scale).log()


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = athanor.where((q.probs == 0).expand_as(terms), float("inf"), terms)
    return athanor.where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    ones = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    ones = athanor.where(q.probs == 0, float("inf"), ones)
    ones = athanor.where(p.probs == 0, 0.0, ones)
    zeros = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    zeros = athanor.where(q.probs == 1, float("inf"), zeros)
    return ones + athanor.where(p.probs == 1, 0.0, zeros)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - athanor.log1p(-q.probs) / p.probs - q.logits


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * athanor.exp(-distance / p.scale) - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return athanor.where((q.low > p.low) | (q.high < p.high), float("inf"), result)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event shapes cannot be computed")
    batch = tuple(athanor.broadcast_shapes(p.batch_shape, q.batch_shape))
    n = p.event_shape[0]
    tril = q.scale_tril.expand(batch + (n, n))
    spread = athanor.linalg.solve(tril, p.scale_tril.expand(batch + (n, n))).pow(2).sum((-2, -1))
    shift = athanor.linalg.solve(tril, (q.loc - p.loc).expand(batch + (n,)).unsqueeze(-1)).squeeze(-1).pow(2).sum(-1)
    return q._log_volume() - p._log_volume() + 0.5 * (spread + shift - n)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of Independents with different reinterpreted_batch_ndims")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    difference = p.loc - q.loc
    ratio = p.scale / q.scale
    folded = math.sqrt(2 / math.pi) * ratio * athanor.exp(-0.5 * (difference / p.scale).pow(2))
    folded = folded + difference / q.scale * athanor.erf(math.sqrt(0.5) * difference / p.scale)
    return -ratio.log() - 0.5 * math.log(2 * math.pi) - 0.5 + math.log(2) + folded
