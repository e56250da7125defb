"""Functions that are written with others: quantiles, histograms, differences, indices, parts of numbers, Poisson numbers."""
from __future__ import annotations

import math
import warnings
from typing import Any, Optional, Sequence, Tuple, Union

from . import _C
from ._C import Size, Tensor
from ._functions import _check_tensor, _written

_ops = _C.ops
_FLOATS = (_C.float32, _C.float64)
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def quantile(input: Tensor, q: Union[float, Tensor], dim: Optional[int] = None, keepdim: bool = False, *,
             interpolation: str = "linear", out: Optional[Tensor] = None) -> Tensor:
    """The q-quantiles of all elements, or along dim; a row with a NaN has NaN.

    q: a number from [0, 1], or a vector of them in input's dtype (float32 or float64), which then is the result's first dim.
    interpolation says what lies between two elements: "linear", "lower", "higher", "midpoint" or "nearest". Raises
    RuntimeError for other dtypes, for no elements and for q outside [0, 1].
    """
    return _written(_quantile("quantile", input, q, dim, keepdim, interpolation, False), out)


def nanquantile(input: Tensor, q: Union[float, Tensor], dim: Optional[int] = None, keepdim: bool = False, *,
                interpolation: str = "linear", out: Optional[Tensor] = None) -> Tensor:
    """quantile of the elements that are not NaN; NaN where there are none. Arguments and errors: those of quantile."""
    return _written(_quantile("nanquantile", input, q, dim, keepdim, interpolation, True), out)


def _quantile(name: str, x: Tensor, q: Any, dim: Optional[int], keepdim: bool, interpolation: str, skips_nan: bool) -> Tensor:
    if not isinstance(q, (int, float, Tensor)):
        raise TypeError(f"{name}(): argument 'q' must be float or Tensor, not {type(q).__name__}")
    if x.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if _C.is_autocast_enabled() and x.dtype in (_C.float16, _C.bfloat16):
        x = x.float()
        q = q.float() if isinstance(q, Tensor) else q
    if x.dtype not in _FLOATS:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if isinstance(q, Tensor):
        if q.dim() > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q.dtype != x.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        if not bool(((q >= 0) & (q <= 1)).all()):
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    elif not 0 <= q <= 1:
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                           f"{interpolation}")
    levels = q if isinstance(q, Tensor) else _C.tensor(q, dtype=x.dtype, device=x.device)
    if dim is None:
        shape: list = [1] * x.dim() if keepdim else []
        rows = x.flatten()
    else:
        dims = max(x.dim(), 1)
        if not -dims <= dim < dims:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-dims}, {dims - 1}], but got {dim})")
        rows = x.unsqueeze(0) if x.dim() == 0 else x.movedim(dim, -1)
        shape = list(x.shape)
        if x.dim():
            shape[dim:dim + 1 or None] = [1] if keepdim else []
    ordered = rows.sort(-1)[0]
    last = rows.shape[-1] - 1
    if skips_nan:
        rank = levels.reshape(-1) * ((~rows.isnan()).sum(-1, keepdim=True) - 1).clamp(min=0)
    else:
        # NaNs are the largest: the last element tells of them.
        rank = _ops.where(ordered[..., -1:].isnan(), last, levels.reshape(-1) * last)
    if interpolation == "nearest":
        rank = rank.round()
    elif interpolation == "lower":
        rank = rank.floor()
    elif interpolation == "higher":
        rank = rank.ceil()
    below = rank.detach().floor()
    values = ordered.gather(-1, below.long())
    if interpolation in ("linear", "midpoint"):
        weights = _ops.full_like(rank, 0.5) if interpolation == "midpoint" else rank - below
        values = _ops.lerp(values, ordered.gather(-1, rank.detach().ceil().long()), weights)
    return values.movedim(-1, 0).reshape(([levels.numel()] if levels.dim() else []) + shape)


def _edges(x: Tensor, bins: Any, range: Optional[Sequence[float]], dim: int, name: str) -> Tensor:
    """The borders of the bins of the numbers x."""
    if isinstance(bins, Tensor):
        if bins.dim() != 1:
            raise RuntimeError(f"torch.{name}: bins tensor should have one dimension, but got {bins.dim()} dimensions in the "
                               f"bins tensor for dimension {dim}")
        if bins.dtype != x.dtype:
            raise RuntimeError(f"torch.{name}: input tensor and bins tensors should have the same dtype, but got input "
                               f"{x.dtype} and bins {bins.dtype} for dimension {dim}")
        return bins
    if bins <= 0:
        raise RuntimeError(f"torch.{name}(): bins must be > 0, but got {bins} for dimension {dim}")
    if range is not None:
        low, high = (float(v) for v in range)
        if low > high:
            raise RuntimeError(f"torch.{name}: min should not exceed max, but got min {low:g} max {high:g} for dimension {dim}")
    elif x.numel():
        low, high = x.min().item(), x.max().item()
    else:
        low, high = 0.0, 1.0
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{name}: dimension {dim}'s range [{low}, {high}] is not finite")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _ops.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)


def _histogram(name: str, points: Tensor, edges: Sequence[Tensor], weight: Optional[Tensor], density: bool) -> Tensor:
    """How many points (N, D), or their weights, lie in each bin; those outside all of them in none."""
    counts = [e.numel() - 1 for e in edges]
    inside = _ops.ones((points.shape[0],), dtype=_C.bool, device=points.device)
    place = _ops.zeros((points.shape[0],), dtype=_C.int64, device=points.device)
    for x, e, count in zip(points.t(), edges, counts):
        inside = inside & (x >= e[0]) & (x <= e[-1])
        bin_of = _ops.searchsorted(e, x.contiguous(), right=True) - 1
        place = place * count + bin_of.clamp(0, max(count - 1, 0))  # the last border belongs to the last bin
    values = _ops.ones_like(place, dtype=points.dtype) if weight is None else weight
    total = 1
    for count in counts:
        total *= count
    hist = _ops.zeros((total,), dtype=points.dtype, device=points.device)
    hist = hist.scatter_add(0, place[inside], values[inside]).reshape(counts)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            hist = hist / e.diff().reshape([-1] + [1] * (len(edges) - 1 - d))
    return hist


def _check_histogram(name: str, points: Tensor, sizes: Sequence[int], weight: Optional[Tensor]) -> None:
    if points.dtype not in _FLOATS:
        raise NotImplementedError(f'"{name}" not implemented for \'{points.dtype}\'; expected float32 or float64')
    if weight is not None and tuple(weight.shape) != tuple(sizes):
        raise RuntimeError(f"torch.{name}: if weight tensor is provided it should have the same shape as the input tensor, one "
                           f"weight per point: expected {list(sizes)}, got weight with shape {list(weight.shape)}")
    if weight is not None and weight.dtype != points.dtype:
        raise RuntimeError(f"torch.{name}: if weight tensor is provided, input tensor and weight tensor should have the same "
                           f"dtype, but got input {points.dtype} and weight {weight.dtype}")


def histogram(input: Tensor, bins: Union[int, Tensor], *, range: Optional[Tuple[float, float]] = None,
              weight: Optional[Tensor] = None, density: bool = False,
              out: Optional[Tuple[Tensor, Tensor]] = None) -> Any:
    """(hist, bin_edges): how many elements lie in each bin, a vector of one less than there are edges.

    bins: their number, equally wide over range (the smallest and largest element), or a vector of increasing edges in
    input's dtype. weight, of input's shape, counts instead of 1. density: the integral over the bins is 1. The last bin has
    its right edge; elements outside are left out. Raises NotImplementedError for dtypes other than float32 and float64,
    RuntimeError for bad bins or ranges.
    """
    _check_histogram("histogram", input, input.shape, weight)
    values = input.detach().reshape(-1)
    edges = _edges(values, bins, range, 0, "histogram")
    hist = _histogram("histogram", values[:, None], [edges], None if weight is None else weight.detach().reshape(-1), density)
    results = (hist, edges) if out is None else (_written(hist, out[0]), _written(edges, out[1]))
    return _C._named_results("histogram", "hist bin_edges", results)


def histogramdd(input: Tensor, bins: Any, range: Optional[Sequence[float]] = None, weight: Optional[Tensor] = None,
                density: bool = False) -> Any:
    """(hist, bin_edges): how many points, the rows of input (…, D), lie in each bin of a grid of D dims.

    bins: a number or a vector of edges for each dim, or one number for all; range: the first and last edge of each dim in a
    flat list. weight (…) and density: as in histogram. Errors: as histogram's.
    """
    if input.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    dims = input.shape[-1]
    _check_histogram("histogramdd", input, input.shape[:-1], weight)
    each = list(bins) if isinstance(bins, (list, tuple)) else [bins] * dims
    if len(each) != dims:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if range is not None and len(range) != 2 * dims:
        raise RuntimeError(f"torch.histogramdd: for a {dims}-dimensional histogram range should have {2 * dims} elements, but "
                           f"got {len(range)}")
    points = input.detach().reshape(-1, dims)
    edges = [_edges(points[:, d], b, None if range is None else range[2 * d:2 * d + 2], d, "histogramdd")
             for d, b in enumerate(each)]
    hist = _histogram("histogramdd", points, edges, None if weight is None else weight.detach().reshape(-1), density)
    return _C._named_results("histogramdd", "hist bin_edges", (hist, tuple(edges)))


def gradient(input: Tensor, *, spacing: Any = None, dim: Union[int, Sequence[int], None] = None,
             edge_order: int = 1) -> Tuple[Tensor, ...]:
    """The slope of the values along each dim (or those in dim), of input's shape: central differences inside, differences of
    order edge_order (1 or 2) at both ends.

    spacing: the distance of neighbours, one for all or one per dim, or per dim a vector of coordinates. Raises
    RuntimeError for dims shorter than edge_order + 1 and where spacing and dims do not match.
    """
    if input.dtype == _C.uint8:
        raise NotImplementedError("torch.gradient does not support uint8 input.")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -input.dim() <= d < input.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [{-input.dim()}, {input.dim() - 1}], but got "
                             f"{d})")
    dims = [d % input.dim() for d in dims]
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        if input.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    if isinstance(spacing, (list, tuple)):
        if len(spacing) != len(dims):
            raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar, or a list of as many entries as "
                               f"there are dims ({len(dims)}), but got a list of length {len(spacing)}")
        steps = list(spacing)
    else:
        steps = [1 if spacing is None else spacing] * len(dims)
    return tuple(_slope(input.movedim(d, -1), step, edge_order).movedim(-1, d).contiguous() for d, step in zip(dims, steps))


def _slope(y: Tensor, step: Any, edge_order: int) -> Tensor:
    """gradient along the last dim."""
    n = y.shape[-1]
    if not isinstance(step, Tensor) or step.dim() == 0:
        middle = (y[..., 2:] - y[..., :-2]) / (2 * step)
        if edge_order == 1:
            first, last = (y[..., 1:2] - y[..., :1]) / step, (y[..., -1:] - y[..., -2:-1]) / step
        else:
            first = (-1.5 * y[..., :1] + 2 * y[..., 1:2] - 0.5 * y[..., 2:3]) / step
            last = (1.5 * y[..., -1:] - 2 * y[..., -2:-1] + 0.5 * y[..., -3:-2]) / step
        return _ops.cat([first, middle, last], -1)
    if step.dim() != 1 or step.shape[0] != n:
        raise RuntimeError(f"torch.gradient expected each element of spacing to have one coordinate per element of its dim "
                           f"({n}), got shape {list(step.shape)}")
    gap = step.diff()
    slopes = y.diff(dim=-1) / gap
    left, right = gap[:-1], gap[1:]
    # The parabola through three points has, in the middle, the slopes beside it weighted by the other gap.
    middle = (slopes[..., :-1] * right + slopes[..., 1:] * left) / (left + right)
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:
        first = first - (slopes[..., 1:2] - first) * gap[0] / (gap[0] + gap[1])
        last = last + (last - slopes[..., -2:-1]) * gap[-1] / (gap[-1] + gap[-2])
    return _ops.cat([first, middle, last], -1)


def unravel_index(indices: Tensor, shape: Union[int, Sequence[int]]) -> Tuple[Tensor, ...]:
    """The places in a tensor of this shape, an index tensor per dim, of places in its elements' row. Raises TypeError for
    indices or sizes that are no integers, ValueError for negative sizes."""
    if not isinstance(indices, Tensor):
        raise TypeError(f"expected 'indices' to be a Tensor, but got {type(indices).__name__}")
    if indices.is_floating_point() or indices.dtype == _C.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, list, tuple)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = Size([shape] if isinstance(shape, int) else _integers(shape))
    if any(s < 0 for s in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    result, step = [], 1
    for size in reversed(sizes):
        result.append(indices.div(step, rounding_mode="floor") % size)
        step *= size
    return _ops.stack(result[::-1], -1).unbind(-1) if result else ()


def _integers(shape: Sequence[Any]) -> list:
    for s in shape:
        if not isinstance(s, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(s)}")
    return list(shape)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Optional[Tensor] = None) -> Tensor:
    """The first `size` rows of nonzero(input); where there are fewer, rows of fill_value follow. Raises RuntimeError for a
    negative size."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = _ops.nonzero(input)[:size]
    rest = _ops.full((size - found.shape[0], input.dim()), fill_value, dtype=_C.int64, device=input.device)
    return _written(_ops.cat([found, rest]), out)


def frexp(input: Tensor, *, out: Optional[Tuple[Tensor, Tensor]] = None) -> Any:
    """(mantissa, exponent) with input = mantissa * 2 ** exponent: the mantissa, of input's dtype, is 0 or of [0.5, 1) but for
    its sign, the exponent is int32. Infinities and NaN are their own mantissas. Raises RuntimeError for integers."""
    if not input.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    x = input.detach().double()
    small = x.abs() < 2.0**-1000
    bits = _ops.where(small, x * 2.0**100, x).view(_C.int64)
    exponent = ((bits >> 52) & 2047) - 1022 - 100 * small.long()
    exponent = _ops.where((x == 0) | ~x.isfinite(), 0, exponent)
    # Two factors: one alone may be too small, or too large, for a number.
    half = exponent.div(2, rounding_mode="floor")
    mantissa = (input.double() * _power_of_two(-half) * _power_of_two(half - exponent)).to(input.dtype)
    results = (mantissa, exponent.int())
    if out is not None:
        results = (_written(mantissa, out[0]), _written(results[1], out[1]))
    return _C._named_results("frexp", "mantissa exponent", results)


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent + 1023) << 52).view(_C.float64)


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Numbers of Poisson distributions whose rates are the elements, in input's dtype and without a gradient. Raises
    RuntimeError for negative rates, NotImplementedError for integers."""
    if not input.is_floating_point():
        raise NotImplementedError(f'"poisson" not implemented for \'{input.dtype}\'; expected floating rates')
    rate = input.detach().double()
    if not bool((rate >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    if rate.numel() == 0:
        return _ops.empty_like(input)

    def uniform() -> Tensor:
        return _ops.rand(rate.shape, generator=generator, dtype=_C.float64, device=rate.device)

    result = _ops.zeros_like(rate)
    few = rate < 10
    if bool(few.any()):
        # Events before the product of uniform numbers falls below exp(-rate).
        limit, product = (-rate.clamp(max=10)).exp(), uniform()
        count, running = _ops.zeros_like(rate), product > limit
        while bool((running & few).any()):
            count = count + running
            product = product * uniform()
            running = running & (product > limit)
        result = _ops.where(few, count, result)
    waiting = ~few
    if bool(waiting.any()):
        # Transformed rejection (Hörmann, 1993, "The transformed rejection method for generating Poisson random variables").
        mean = rate.clamp(min=10)
        root = mean.sqrt()
        b = 0.931 + 2.53 * root
        a = -0.059 + 0.02483 * b
        quick = 0.9277 - 3.6224 / (b - 2)
        scale = 1.1239 + 1.1328 / (b - 3.4)
        while bool(waiting.any()):
            u, v = uniform() - 0.5, uniform()
            distance = 0.5 - u.abs()
            k = ((2 * a / distance + b) * u + mean + 0.43).floor()
            at_once = (distance >= 0.07) & (v <= quick)
            slow = (v * scale / (a / (distance * distance) + b)).log() <= k * mean.log() - mean - _ops.lgamma(k.clamp(min=0) + 1)
            ready = at_once | ((k >= 0) & ~((distance < 0.013) & (v > distance)) & slow)
            result = _ops.where(waiting & ready, k, result)
            waiting = waiting & ~ready
    return result.to(input.dtype)


def i0(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """special.i0 by its older name."""
    from . import special

    return special.i0(input, out=out)


def i0_(input: Tensor) -> Tensor:
    """special.i0 in place."""
    return _in_place("i0_", input, i0(input.clone() if input.requires_grad else input))


def mvlgamma(input: Tensor, p: int, *, out: Optional[Tensor] = None) -> Tensor:
    """special.multigammaln by its older name."""
    from . import special

    return special.multigammaln(input, p, out=out)


def mvlgamma_(input: Tensor, p: int) -> Tensor:
    """special.multigammaln in place."""
    return _in_place("mvlgamma_", input, mvlgamma(input.clone() if input.requires_grad else input, p))


def _in_place(name: str, input: Tensor, value: Tensor) -> Tensor:
    if not _C.can_cast(value.dtype, input.dtype):
        raise RuntimeError(f"{name}: result type {value.dtype} can't be cast to the desired output type {input.dtype}")
    return input.copy_(value)


def cov(input: Tensor, *, correction: int = 1, fweights=None, aweights=None) -> Tensor:
    """The covariance matrix of the rows, variables, whose columns are observations."""
    _check_tensor("cov", input)
    if input.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    if not x.is_floating_point():
        x = x.to(_C.get_default_dtype())
    w = None
    for given in (fweights, aweights):
        if given is not None:
            w = given.to(x.dtype) if w is None else w * given
    total = x.shape[1] if w is None else w.sum()
    mean = x.mean(1, keepdim=True) if w is None else (x * w).sum(1, keepdim=True) / total
    if w is None or aweights is None or correction == 0:
        factor = total - correction
    else:
        factor = total - correction * (w * aweights).sum() / total
    if factor <= 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
                       stacklevel=2)
        factor = 0.0 * x.new_ones(())
    centred = x - mean
    return ((centred if w is None else centred * w) @ centred.t() / factor).squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of the rows."""
    c = cov(input)
    if c.dim() == 0:
        return c / c
    deviation = c.diagonal().sqrt()
    return (c / deviation[:, None] / deviation[None, :]).clamp(-1, 1)


def _attach() -> None:
    from ._tensor import _method

    for function in (quantile, nanquantile, histogram, nonzero_static, frexp, i0, i0_, mvlgamma, mvlgamma_, cov,
                     corrcoef):
        setattr(Tensor, function.__name__, _method(function))


_attach()
