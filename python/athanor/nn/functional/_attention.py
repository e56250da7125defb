"""Multi-head attention (Vaswani et al., "Attention is all you need", 2017)."""

from __future__ import annotations

import math
from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor

_ops = _C.ops
_Maybe = Optional[Tensor]

scaled_dot_product_attention = _ops.scaled_dot_product_attention


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_heads: int, separate: bool) -> None:
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    if key.dim() != query.dim() or value.dim() != query.dim():
        kind = "unbatched (2-D)" if query.dim() == 2 else "batched (3-D)"
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.dim()}-D but found {key.dim()}-D and "
            f"{value.dim()}-D tensors respectively"
        )
    if query.shape[-1] != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {query.shape[-1]}")
    if embed_dim % num_heads != 0:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate and key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(
            f"key's sequence and batch dims {key.shape[:-1]} do not match value's {value.shape[:-1]}"
        )
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _project(
    query: Tensor, key: Tensor, value: Tensor, embed: int, weight: _Maybe, bias: _Maybe, separate: Optional[list]
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v; inputs that are the same tensor are projected at once."""

    def part(t: _Maybe, first: int, count: int) -> _Maybe:
        return None if t is None else t.narrow(0, first * embed, count * embed)

    if separate is not None:
        q, k, v = (_ops.linear(x, w, part(bias, i, 1)) for i, (x, w) in enumerate(zip((query, key, value), separate)))
        return q, k, v
    if query is key and key is value:
        return tuple(_ops.linear(query, weight, bias).chunk(3, -1))
    if key is value:
        k, v = _ops.linear(key, part(weight, 1, 2), part(bias, 1, 2)).chunk(2, -1)
        return _ops.linear(query, part(weight, 0, 1), part(bias, 0, 1)), k, v
    q, k, v = (_ops.linear(x, part(weight, i, 1), part(bias, i, 1)) for i, x in enumerate((query, key, value)))
    return q, k, v


def _check_mask(mask: _Maybe, name: str) -> None:
    if mask is not None and mask.dtype != athanor.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")


def _widened(mask: Tensor, more: int) -> Tensor:
    """A mask with `more` columns added that are open."""
    return athanor.cat([mask, mask.new_zeros([*mask.shape[:-1], more])], -1) if more else mask


def _addend(mask: Tensor, dtype: Any) -> Tensor:
    """What is added to scores for a mask."""
    if mask.dtype != athanor.bool:
        return mask.to(dtype)
    return athanor.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


def _joined_mask(
    attn_mask: _Maybe, padding: _Maybe, batch: int, heads: int, rows: int, columns: int, added: int, dtype: Any
) -> _Maybe:
    """Both masks in one, of (N or 1, heads or 1, L, S): bool and true where open, or added to the scores."""
    _check_mask(attn_mask, "attn_mask")
    _check_mask(padding, "key_padding_mask")
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"For batched (3-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead"
            )
        expected = (rows, columns) if attn_mask.dim() == 2 else (batch * heads, rows, columns)
        if tuple(attn_mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the {attn_mask.dim()}D attn_mask is {tuple(attn_mask.shape)}, but should be {expected}."
            )
        attn_mask = _widened(attn_mask, added)
        if attn_mask.dim() == 3:
            attn_mask = attn_mask.reshape(batch, heads, rows, columns + added)
    if padding is not None:
        if padding.dim() == 1:
            padding = padding.unsqueeze(0)
        if tuple(padding.shape) != (batch, columns):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, columns)}, but got {tuple(padding.shape)}"
            )
        padding = _widened(padding, added).reshape(batch, 1, 1, columns + added)
    masks = [m for m in (attn_mask, padding) if m is not None]
    if not masks:
        return None
    if all(m.dtype == athanor.bool for m in masks):
        closed = masks[0] if len(masks) == 1 else masks[0].logical_or(masks[1])
        return closed.logical_not()
    addends = [_addend(m, dtype) for m in masks]
    return addends[0] if len(addends) == 1 else addends[0] + addends[1]


def _weights_of(q: Tensor, k: Tensor, mask: _Maybe) -> Tensor:
    """softmax(q kᵀ / sqrt(d) + mask), to be given to the caller."""
    scores = (q * (1.0 / math.sqrt(q.size(-1)))).matmul(k.transpose(-2, -1))
    if mask is not None:
        closed = mask.dtype == athanor.bool
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if closed else scores + mask
    return scores.softmax(-1)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: _Maybe,
    in_proj_bias: _Maybe,
    bias_k: _Maybe,
    bias_v: _Maybe,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: _Maybe,
    training: bool = True,
    key_padding_mask: _Maybe = None,
    need_weights: bool = True,
    attn_mask: _Maybe = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: _Maybe = None,
    k_proj_weight: _Maybe = None,
    v_proj_weight: _Maybe = None,
    static_k: _Maybe = None,
    static_v: _Maybe = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, _Maybe]:
    """query (L, N, E), key (S, N, K), value (S, N, V), or without N. key_padding_mask (N, S) and attn_mask (L, S) or
    (N · heads, L, S): bool, true where closed, or floating, added to the scores. is_causal: attn_mask is the causal
    one, which is not read if weights are not wanted. Gives the result and the weights (N, L, S), per head without
    average_attn_weights, None without need_weights.
    """
    _check_shapes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    alone = query.dim() == 2
    if alone:
        q = query.unsqueeze(1)
        k = q if key is query else key.unsqueeze(1)
        query, key, value = q, k, k if value is key else value.unsqueeze(1)
    if tuple(key.shape[:2]) != tuple(value.shape[:2]):
        raise AssertionError(
            f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's {tuple(value.shape[:2])}"
        )
    rows, batch, embed = query.shape
    separate = [q_proj_weight, k_proj_weight, v_proj_weight] if use_separate_proj_weight else None
    q, k, v = _project(query, key, value, embed, in_proj_weight, in_proj_bias, separate)
    columns, added = key.shape[0], 0
    if (bias_k is None) != (bias_v is None):
        raise AssertionError("bias_k and bias_v go together")
    if bias_k is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k = athanor.cat([k, bias_k.expand(1, batch, -1)], 0)
        assert bias_v is not None
        v = athanor.cat([v, bias_v.expand(1, batch, -1)], 0)
        added += 1

    def by_heads(t: Tensor) -> Tensor:
        return t.reshape(t.shape[0], batch, num_heads, t.shape[2] // num_heads).permute(1, 2, 0, 3)

    q = by_heads(q)
    k = by_heads(k) if static_k is None else static_k.reshape(batch, num_heads, *static_k.shape[-2:])
    v = by_heads(v) if static_v is None else static_v.reshape(batch, num_heads, *static_v.shape[-2:])
    if static_k is not None:
        columns = k.shape[2]
    if add_zero_attn:
        k = athanor.cat([k, k.new_zeros([batch, num_heads, 1, k.shape[3]])], 2)
        v = athanor.cat([v, v.new_zeros([batch, num_heads, 1, v.shape[3]])], 2)
        added += 1
    dropout_p = dropout_p if training else 0.0
    causal = is_causal and not need_weights and key_padding_mask is None and added == 0
    mask = None
    if not causal:
        mask = _joined_mask(attn_mask, key_padding_mask, batch, num_heads, rows, columns, added, q.dtype)
    weights = None
    if need_weights:
        weights = _weights_of(q, k, mask)
        if dropout_p > 0.0:
            weights = _ops.dropout(weights, dropout_p, True)
        out = weights.matmul(v)
        if average_attn_weights:
            weights = weights.mean(1)
    else:
        out = _ops.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
    out = _ops.linear(out.permute(2, 0, 1, 3).reshape(rows, batch, embed), out_proj_weight, out_proj_bias)
    if alone:
        return out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights
