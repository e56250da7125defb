"""Linear maps, tables and distances."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor

_ops = _C.ops

one_hot = _ops.one_hot
_cosine_similarity = _ops.cosine_similarity
pairwise_distance = _ops.pairwise_distance
pdist = _ops.pdist
_embedding = _ops.embedding
_linear = _ops.linear
_BAG_MODES = {"sum": 0, "mean": 1, "max": 2}


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along dim; norms count as eps at least."""
    if x1.dtype != x2.dtype:
        common = athanor.promote_types(x1.dtype, x2.dtype)
        x1, x2 = x1.to(common), x2.to(common)
    return _cosine_similarity(x1, x2, dim, eps)


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """input (*, in) times weightᵀ (out, in), plus bias (out): (*, out). A weight (in) gives a result (*)."""
    if weight.dim() == 1:
        product = input.matmul(weight)
        return product if bias is None else product + bias
    return _linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """result_k = input1ᵀ weight_k input2 + bias_k; input1 (*, in1), input2 (*, in2), weight (out, in1, in2)."""
    lead = tuple(input1.shape[:-1])
    if weight.dim() != 3 or tuple(input2.shape[:-1]) != lead or input1.dim() == 0:
        raise RuntimeError(
            "bilinear: expected inputs (*, in1) and (*, in2) and a weight (out, in1, in2), got shapes "
            f"{tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(weight.shape)}"
        )
    if (input1.shape[-1], input2.shape[-1]) != tuple(weight.shape[1:]):
        raise RuntimeError(
            f"bilinear: input sizes {input1.shape[-1]} and {input2.shape[-1]} do not match the weight "
            f"{tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise RuntimeError(f"bilinear: expected a bias of {weight.shape[0]} elements, got shape {tuple(bias.shape)}")
    a = input1.reshape(-1, weight.shape[1])
    b = input2.reshape(-1, weight.shape[2])
    out, in1, in2 = weight.shape
    # (n, in1) · (in1, out in2), then with b along in2.
    left = a.matmul(weight.permute(1, 0, 2).reshape(in1, out * in2)).reshape(-1, out, in2)
    result = left.matmul(b.unsqueeze(-1)).squeeze(-1)
    if bias is not None:
        result = result + bias
    return result.reshape(*lead, out)


def _renormalize(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    with athanor.no_grad():
        _ops.embedding_renorm_(weight, indices.contiguous(), max_norm, norm_type)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: Optional[int] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of weight (n, d) that input names: shape of input, then d.

    padding_idx: a row that gets no gradient. max_norm: rows looked up are scaled down to it, in place.
    """
    if padding_idx is None:
        padding_idx = -1
    else:
        rows = weight.size(0)
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    return _embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Optional[Tensor] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Optional[Tensor] = None,
    include_last_offset: bool = False,
    padding_idx: Optional[int] = None,
) -> Tensor:
    """The rows of weight that input names, combined bag by bag: each row of a 2-d input is a bag, a 1-d one is cut by
    offsets. mode: "sum", "mean" or "max".
    """
    if weight.dtype == athanor.long and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.", stacklevel=2)
        input, weight = weight, input
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the "
            f"same shape as the input ({input.shape})"
        )
    if mode not in _BAG_MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
            f"mode='{mode}'). Please open a feature request on GitHub."
        )
    last = include_last_offset
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        count, width = input.shape
        offsets = athanor.arange(count, device=input.device) * width
        input = input.reshape(-1)
        last = False
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    result: Any = _ops.embedding_bag(
        weight, input, offsets, scale_grad_by_freq, _BAG_MODES[mode], sparse, per_sample_weights, last, padding_idx
    )
    return result[0]
