"""Probability distributions with parameters that have gradients: samples, log_prob, entropy, kl_divergence."""

from __future__ import annotations

from . import constraints as constraints, transforms as transforms
from .continuous import (
    Cauchy as Cauchy, Exponential as Exponential, Gumbel as Gumbel, HalfNormal as HalfNormal, Independent as Independent,
    Laplace as Laplace, MultivariateNormal as MultivariateNormal, Normal as Normal, Uniform as Uniform,
)
from .discrete import (
    Bernoulli as Bernoulli, Categorical as Categorical, Geometric as Geometric, OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from .distribution import Distribution as Distribution, ExponentialFamily as ExponentialFamily
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
from .transformed import LogNormal as LogNormal, TransformedDistribution as TransformedDistribution
from .transforms import (
    AffineTransform as AffineTransform, ComposeTransform as ComposeTransform, ExpTransform as ExpTransform,
    PowerTransform as PowerTransform, SigmoidTransform as SigmoidTransform, TanhTransform as TanhTransform,
    Transform as Transform,
)


def _give_classes_their_old_homes() -> None:
    """`from athanor.distributions.normal import Normal`: PyTorch has a module per class."""
    import sys
    import types

    homes = {
        "bernoulli": "Bernoulli", "categorical": "Categorical", "cauchy": "Cauchy", "exp_family": "ExponentialFamily",
        "exponential": "Exponential", "geometric": "Geometric", "gumbel": "Gumbel", "half_normal": "HalfNormal",
        "independent": "Independent", "laplace": "Laplace", "log_normal": "LogNormal",
        "multivariate_normal": "MultivariateNormal", "normal": "Normal", "one_hot_categorical": "OneHotCategorical",
        "transformed_distribution": "TransformedDistribution", "uniform": "Uniform",
    }
    for home, name in homes.items():
        module = types.ModuleType(f"{__name__}.{home}", f"The home of {name}.")
        module.__dict__[name] = globals()[name]
        globals()[home] = sys.modules[module.__name__] = module


_give_classes_their_old_homes()
