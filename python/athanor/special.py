"""Special functions, under the names of torch.special."""
from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple, Union

from . import _C
from ._C import Tensor
from ._functions import _written, result_type

_ops = _C.ops
digamma = psi = _ops.digamma
gammaln, polygamma = _ops.lgamma, _ops.polygamma
erf, erfc, erfinv = _ops.erf, _ops.erfc, _ops.erfinv
exp2, expm1, log1p, sinc = _ops.exp2, _ops.expm1, _ops.log1p, _ops.sinc
expit, logit, logsumexp, round = _ops.sigmoid, _ops.logit, _ops.logsumexp, _ops.round
softmax, log_softmax, xlogy = _ops.softmax, _ops.log_softmax, _ops.xlogy
_INFINITY = float("inf")
_ROOT_2 = math.sqrt(2.0)


def _double(x: Tensor) -> Tuple[Tensor, Any]:
    """The numbers in float64, in which all is computed, and the dtype of the result."""
    return x.double(), x.dtype if x.is_floating_point() else _C.get_default_dtype()


def entr(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """-x log(x) of each element: 0 for 0, -inf for negative numbers."""
    dtype = _double(input)[1]
    x = input.to(dtype)
    positive = x > 0
    value = -x * _ops.where(positive, x, 1.0).log()
    elsewhere = _ops.zeros_like(x).masked_fill(x < 0, -_INFINITY)
    return _written(_ops.where(positive | x.isnan(), value, elsewhere), out)


def xlog1py(input: Union[Tensor, float], other: Union[Tensor, float], *, out: Optional[Tensor] = None) -> Tensor:
    """x * log1p(y) of each pair of elements, 0 where x is 0 and y is not NaN. One of both may be a number; TypeError if
    both are."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError("xlog1py(): argument 'other' must be Tensor, not " + type(other).__name__)
    like = input if isinstance(input, Tensor) else other
    assert isinstance(like, Tensor)
    x, y = (v if isinstance(v, Tensor) else _C.tensor(v, device=like.device) for v in (input, other))
    promoted = result_type(input, other)
    dtype = promoted if promoted.is_floating_point else _C.get_default_dtype()
    x, y = x.to(dtype), y.to(dtype)
    return _written(x * _ops.where((x == 0) & ((y <= -1) | (y == _INFINITY)), 0.0, y).log1p(), out)


def ndtr(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The probability that a standard normal number is at most x, of each element."""
    x, dtype = _double(input)
    return _written((0.5 * (x * (-1 / _ROOT_2)).erfc()).to(dtype), out)


def erfcx(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """exp(x²) erfc(x) of each element, also where erfc(x) is too small for a number."""
    x, dtype = _double(input)
    return _written(_erfcx(x).to(dtype), out)


def _erfcx(x: Tensor) -> Tensor:
    large = x > 5
    near = _ops.where(large, 0.0, x)
    far = _ops.where(large, x, 6.0)
    # Laplace's continued fraction, from its end.
    fraction = far
    for k in range(40, 0, -1):
        fraction = far + (0.5 * k) / fraction
    return _ops.where(large, 1 / (math.sqrt(math.pi) * fraction), (near * near).exp() * near.erfc())


def log_ndtr(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The logarithm of ndtr, also where that is too small for a number."""
    x, dtype = _double(input)
    return _written(_log_ndtr(x).to(dtype), out)


def _log_ndtr(x: Tensor) -> Tensor:
    low = x < -1
    tail = _ops.where(low, x, -2.0)
    body = _ops.where(low, 0.0, x)
    return _ops.where(low, (_erfcx(tail * (-1 / _ROOT_2)) * 0.5).log() - tail * tail * 0.5,
                      (-0.5 * (body * (1 / _ROOT_2)).erfc()).log1p())


def ndtri(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The x of which ndtr(x) is the element: -inf for 0, inf for 1, NaN outside [0, 1]."""
    p, dtype = _double(input)
    return _written(_inverse_normal(p).to(dtype), out)


def _inverse_normal(p: Tensor) -> Tensor:
    fixed = p.detach()
    lower = fixed <= 0.5
    inside = (fixed > 0) & (fixed < 1)
    half = _ops.where(inside, _ops.where(lower, fixed, 1 - fixed), 0.25)
    goal = half.log()
    x = _ops.where(half > 0.1, (2 * half - 1).erfinv() * _ROOT_2, -(-2 * goal).sqrt())
    for _ in range(8):  # Newton's steps on the logarithm, whose slope is that of a concave function
        x = x - (_log_ndtr(x) - goal) * _erfcx(x * (-1 / _ROOT_2)) * math.sqrt(math.pi / 2)
    x = _ops.where(lower, x, -x)
    x = _ops.where(inside, x, _ops.where(fixed == 0, -_INFINITY, _ops.where(fixed == 1, _INFINITY, float("nan"))))
    return _Inverse.of(p, x)


class _Inverse:
    """The Function that gives ndtri its gradient; made when it is first needed, since Functions load later than this."""

    function: Any = None

    @classmethod
    def of(cls, p: Tensor, x: Tensor) -> Tensor:
        if not p.requires_grad:
            return x
        if cls.function is None:
            from .autograd import Function

            class Ndtri(Function):
                @staticmethod
                def forward(ctx: Any, p: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
                    result = x.clone()
                    ctx.save_for_backward(result)
                    return result

                @staticmethod
                def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
                    result, = ctx.saved_tensors
                    return grad * (result * result * 0.5).exp() * math.sqrt(2 * math.pi), None

            cls.function = Ndtri
        result: Tensor = cls.function.apply(p, x)
        return result


def multigammaln(input: Tensor, p: int, *, out: Optional[Tensor] = None) -> Tensor:
    """The logarithm of the gamma function of p dims, for elements above (p - 1) / 2. Raises RuntimeError for p < 1."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    dtype = _double(input)[1]
    shifts = _C.tensor([-0.5 * j for j in range(p)], dtype=dtype, device=input.device)
    value = (input.to(dtype)[..., None] + shifts).lgamma().sum(-1) + 0.25 * p * (p - 1) * math.log(math.pi)
    return _written(value, out)


def i0(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The modified Bessel function of the first kind of order 0, of each element."""
    return _bessel(input, 0, False, out)


def i0e(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """exp(-|x|) i0(x) of each element."""
    return _bessel(input, 0, True, out)


def i1(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The modified Bessel function of the first kind of order 1, of each element."""
    return _bessel(input, 1, False, out)


def i1e(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """exp(-|x|) i1(x) of each element."""
    return _bessel(input, 1, True, out)


def _polynomial(coefficients: List[float], x: Tensor) -> Tensor:
    result = x * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3::-1]:
        result = result * x + c
    return result


def _bessel(input: Tensor, order: int, scaled: bool, out: Optional[Tensor]) -> Tensor:
    """Up to 20 the power series in x²/4, whose terms are all positive; beyond, Hankel's expansion in 1/x."""
    x, dtype = _double(input)
    large = x.abs() > 20
    near = _ops.where(large, 1.0, x)
    far = _ops.where(large, x, 30.0).abs()
    series, expansion = [1.0], [1.0]
    for k in range(1, 61):
        series.append(series[-1] / (k * (k + order)))
    for k in range(1, 26):
        expansion.append(expansion[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    low = _polynomial(series, near * near * 0.25)
    high = _polynomial(expansion, 1 / far) / (2 * math.pi * far).sqrt()
    if order:
        low = low * near * 0.5
        high = high * x.detach().sign()
    if scaled:
        low = low * (-near.abs()).exp()
    else:
        high = high * far.exp()
    return _written(_ops.where(large, high, low).to(dtype), out)
