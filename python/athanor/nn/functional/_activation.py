"""Activations."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor

_ops = _C.ops

relu_ = _ops.relu_
elu_ = _ops.elu_
selu_ = _ops.selu_
celu_ = _ops.celu_
leaky_relu_ = _ops.leaky_relu_
hardtanh_ = _ops.hardtanh_
threshold_ = _ops.threshold_
rrelu_ = _ops.rrelu_
gelu = _ops.gelu
softplus = _ops.softplus
softshrink = _ops.softshrink
hardshrink = _ops.hardshrink
prelu = _ops.prelu
logsigmoid = _ops.log_sigmoid

_relu, _relu_ = _ops.relu, _ops.relu_
_tanh, _sigmoid = _ops.tanh, _ops.sigmoid


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(0, input), elementwise."""
    return _relu_(input) if inplace else _relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(0, input), 6), elementwise."""
    return _ops.relu6_(input) if inplace else _ops.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha (exp(input) - 1)."""
    return _ops.elu_(input, alpha) if inplace else _ops.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The scaled elu that keeps mean 0 and variance 1."""
    return _ops.selu_(input) if inplace else _ops.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return _ops.celu_(input, alpha) if inplace else _ops.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope times it."""
    return _ops.leaky_relu_(input, negative_slope) if inplace else _ops.leaky_relu(input, negative_slope)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] in training, their mean otherwise."""
    return (_ops.rrelu_ if inplace else _ops.rrelu)(input, lower, upper, training)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where greater than threshold, else value."""
    return (_ops.threshold_ if inplace else _ops.threshold)(input, threshold, value)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]. ValueError if min_val is the greater one."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return (_ops.hardtanh_ if inplace else _ops.hardtanh)(input, min_val, max_val)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6."""
    return (_ops.hardsigmoid_ if inplace else _ops.hardsigmoid)(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input · relu6(input + 3) / 6."""
    return (_ops.hardswish_ if inplace else _ops.hardswish)(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input · sigmoid(input)."""
    return (_ops.silu_ if inplace else _ops.silu)(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input · tanh(softplus(input))."""
    return (_ops.mish_ if inplace else _ops.mish)(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of dim times the sigmoid of the second."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    return _ops.glu(input, dim)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return _ops.softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return _ops.tanhshrink(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _tanh(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return _sigmoid(input)


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) as shares of their sum along dim. dtype: that of the result, to which input is cast first."""
    if dim is None:
        dim = _implicit_dim("softmax", input.dim(), _stacklevel)
    return _ops.softmax(input, dim, dtype)


def softmin(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of -input."""
    if dim is None:
        dim = _implicit_dim("softmin", input.dim(), _stacklevel)
    return _ops.softmax(-input, dim, dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(input)), computed without overflow."""
    if dim is None:
        dim = _implicit_dim("log_softmax", input.dim(), _stacklevel)
    return _ops.log_softmax(input, dim, dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Samples from the Gumbel-softmax distribution (Jang et al., 2016). hard: one-hot, with the gradient of the soft
    sample."""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    gumbels = -athanor.empty_like(logits).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one = athanor.zeros_like(logits).scatter_(dim, index, 1.0)
    return one - soft.detach() + soft
