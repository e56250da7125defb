"""Transformer (Vaswani et al., 2017): encoder, decoder, and their layers."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional, Union

import athanor
from athanor._C import Tensor
from athanor.nn import functional as F
from athanor.nn import init

from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerEncoder",
    "TransformerDecoder",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
]

_Maybe = Optional[Tensor]
_Activation = Union[str, Callable[[Tensor], Tensor]]


def _generate_square_subsequent_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    mask = athanor.full((size, size), float("-inf"), device=device, dtype=dtype or athanor.get_default_dtype())
    return mask.triu(1)


def _is_causal(mask: _Maybe, is_causal: Optional[bool], size: int) -> bool:
    """Whether `mask` is the causal one; what the caller says counts if it says anything."""
    if is_causal is not None:
        return is_causal
    if mask is None or mask.dtype == athanor.bool or tuple(mask.shape) != (size, size):
        return False
    causal = _generate_square_subsequent_mask(size, device=mask.device, dtype=mask.dtype)
    return bool((mask == causal).all())


def _activation(activation: _Activation) -> Callable[..., Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


def _copies(module: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


class _Layer(Module):
    """What encoder and decoder layers share: the feed-forward part."""

    __constants__ = ["norm_first"]

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def _ff(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear maps, each with a residual path and a LayerNorm behind it, or before it.

    src (L, N, d_model), (N, L, d_model) with batch_first, or without N.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **where)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def _sa_block(self, x: Tensor, mask: _Maybe, padding: _Maybe, is_causal: bool) -> Tensor:
        return self.dropout1(
            self.self_attn(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal)[
                0
            ]
        )

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._ff(x))

    def forward(
        self, src: Tensor, src_mask: _Maybe = None, src_key_padding_mask: _Maybe = None, is_causal: bool = False
    ) -> Tensor:
        """src_mask (L, L) and src_key_padding_mask (N, L): see MultiheadAttention."""
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, then two linear maps.

    tgt (T, N, d_model), memory (S, N, d_model), with batch_first N first, or both without N; the result has the shape
    of tgt.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        attention = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **where}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def _sa_block(self, x: Tensor, mask: _Maybe, padding: _Maybe, is_causal: bool) -> Tensor:
        return self.dropout1(
            self.self_attn(x, x, x, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal, need_weights=False)[
                0
            ]
        )

    def _mha_block(self, x: Tensor, memory: Tensor, mask: _Maybe, padding: _Maybe, is_causal: bool) -> Tensor:
        return self.dropout2(
            self.multihead_attn(
                x, memory, memory, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal, need_weights=False
            )[0]
        )

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._ff(x))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: _Maybe = None,
        memory_mask: _Maybe = None,
        tgt_key_padding_mask: _Maybe = None,
        memory_key_padding_mask: _Maybe = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt (T, N, E), memory (S, N, E): the encoder's result. Masks: see MultiheadAttention."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))


class TransformerEncoder(Module):
    """num_layers copies of an encoder layer, then norm. enable_nested_tensor and mask_check change nothing here.

    src and the result (S, N, d_model), with batch_first N first, or without N.
    """

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Optional[Module] = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self, src: Tensor, mask: _Maybe = None, src_key_padding_mask: _Maybe = None, is_causal: Optional[bool] = None
    ) -> Tensor:
        """is_causal: whether mask is the causal one; looked up if None."""
        batch_first = getattr(self.layers[0].self_attn, "batch_first", False) if len(self.layers) else False
        causal = _is_causal(mask, is_causal, src.size(1 if src.dim() == 3 and batch_first else 0))
        out = src
        for layer in self.layers:
            out = layer(out, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        return out if self.norm is None else self.norm(out)


class TransformerDecoder(Module):
    """num_layers copies of a decoder layer, then norm.

    tgt and the result (T, N, d_model), memory (S, N, d_model), with batch_first N first, or all without N.
    """

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Optional[Module] = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: _Maybe = None,
        memory_mask: _Maybe = None,
        tgt_key_padding_mask: _Maybe = None,
        memory_key_padding_mask: _Maybe = None,
        tgt_is_causal: Optional[bool] = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt_is_causal: whether tgt_mask is the causal one; looked up if None."""
        batch_first = getattr(self.layers[0].self_attn, "batch_first", False) if len(self.layers) else False
        causal = _is_causal(tgt_mask, tgt_is_causal, tgt.size(1 if tgt.dim() == 3 and batch_first else 0))
        out = tgt
        for layer in self.layers:
            out = layer(
                out,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """An encoder and a decoder. src (S, N, E), tgt (T, N, E); with batch_first N comes first; both may lack N."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = F.relu,
        custom_encoder: Optional[Any] = None,
        custom_decoder: Optional[Any] = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def last_norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = (
            custom_encoder
            if custom_encoder is not None
            else TransformerEncoder(
                TransformerEncoderLayer(*layer, device=device, dtype=dtype), num_encoder_layers, last_norm()
            )
        )
        self.decoder = (
            custom_decoder
            if custom_decoder is not None
            else TransformerDecoder(
                TransformerDecoderLayer(*layer, device=device, dtype=dtype), num_decoder_layers, last_norm()
            )
        )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: _Maybe = None,
        tgt_mask: _Maybe = None,
        memory_mask: _Maybe = None,
        src_key_padding_mask: _Maybe = None,
        tgt_key_padding_mask: _Maybe = None,
        memory_key_padding_mask: _Maybe = None,
        src_is_causal: Optional[bool] = None,
        tgt_is_causal: Optional[bool] = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batched = src.dim() == 3
        if batched and src.size(0 if self.batch_first else 1) != tgt.size(0 if self.batch_first else 1):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): -inf above the diagonal, 0 elsewhere."""
        return _generate_square_subsequent_mask(sz, device=device, dtype=dtype)

    def _reset_parameters(self) -> None:
        for param in self.parameters():
            if param.dim() > 1:
                init.xavier_uniform_(param)
