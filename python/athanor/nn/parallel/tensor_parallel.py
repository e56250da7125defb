"""Layers split over the devices of one process: each device has a part of the weights and computes with it, the parts of
the result are joined or added. They are made from the layer they stand for, and give its results and gradients.

    up = nn.parallel.ColumnParallelLinear(nn.Linear(512, 2048), devices=["cpu:0", "cpu:1"])
    down = nn.parallel.RowParallelLinear(nn.Linear(2048, 512), devices=["cpu:0", "cpu:1"])
    y = down.forward_parts([F.gelu(part) for part in up.forward_parts(x)])  # nothing but x and y changes its device

Arguments of all: devices, the virtual devices unless given; sizes, what each device gets, as equal as can be unless given;
output_device, the first unless given. ValueError for a device listed twice, and for sizes that are not one positive number
per device with the right sum. Inputs may be on any device. The split layer has copies of the given one's parameters, under
the names weight_0, weight_1 and so on, which lie on the devices.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import athanor
from athanor import Tensor
from athanor._C import _distributed as _core

from .. import functional as F
from ..modules.attention import MultiheadAttention
from ..modules.linear import Linear
from ..modules.module import Module
from ..modules.sparse import Embedding
from ..parameter import Parameter

__all__ = ["ColumnParallelLinear", "ParallelEmbedding", "ParallelMultiheadAttention", "RowParallelLinear"]


class _Split:
    """Who gets what of a layer."""

    def __init__(self, who: str, what: str, total: int, devices: Any, sizes: Any, output_device: Any) -> None:
        self.devices = [athanor.device(d) for d in (devices if devices is not None else _core.all_devices())]
        if not self.devices:
            raise ValueError(f"{who}: expected at least one device, got none")
        for d in self.devices:
            if self.devices.count(d) > 1:
                raise ValueError(f"{who}: device {d} is listed twice in {[str(d) for d in self.devices]}")
        parts = len(self.devices)
        self.sizes = [(total + parts - 1 - i) // parts for i in range(parts)] if sizes is None else list(sizes)
        if len(self.sizes) != parts:
            raise ValueError(f"{who}: sizes {self.sizes} are for {len(self.sizes)} parts, there are {parts} devices")
        if min(self.sizes) <= 0:
            raise ValueError(f"{who}: every device needs a part, got sizes {self.sizes} of {total} {what} on {parts} devices; "
                             "list fewer devices")
        if sum(self.sizes) != total:
            raise ValueError(f"{who}: sizes {self.sizes} do not add up to the {total} {what} of the layer")
        self.begins = [sum(self.sizes[:i]) for i in range(parts)]
        self.output = athanor.device(output_device) if output_device is not None else self.devices[0]


class _SplitLayer(Module):
    output_device: Any

    def _part(self, name: str, whole: Optional[Tensor], dim: int, begin: int, size: int, device: Any) -> None:
        if whole is None:
            self.register_parameter(name, None)
            return
        part = whole.detach().narrow(dim, begin, size).to(device).clone(memory_format=athanor.contiguous_format)
        self.register_parameter(name, Parameter(part, whole.requires_grad))

    def _all(self, name: str) -> List[Any]:
        """The parts of a parameter, in the order of the devices."""
        found = []
        while f"{name}_{len(found)}" in self._parameters:
            found.append(self._parameters[f"{name}_{len(found)}"])
        return found

    @property
    def weights(self) -> List[Any]:
        """Each device's part of the weight."""
        return self._all("weight")

    def _sum(self, parts: Sequence[Tensor], bias: Optional[Tensor]) -> Tensor:
        total = parts[0].to(self.output_device)
        for part in parts[1:]:
            total = total + part.to(self.output_device)
        return total if bias is None else total + bias

    def _places(self, name: str, dim: int) -> str:
        return ", ".join(f"{w.size(dim)} on {w.device}" for w in self._all(name))


def _check_features(who: str, input: Any, features: int) -> None:
    if not isinstance(input, Tensor) or input.dim() == 0 or input.size(-1) != features:
        got = list(input.shape) if isinstance(input, Tensor) else type(input).__name__
        raise RuntimeError(f"{who}: expected an input whose last dimension is {features}, got {got}")


class ColumnParallelLinear(_SplitLayer):
    """Linear with its outputs split; sizes count output features."""

    def __init__(self, whole: Linear, devices: Any = None, sizes: Optional[Sequence[int]] = None, output_device: Any = None):
        super().__init__()
        split = _Split("ColumnParallelLinear", "output features", whole.weight.size(0), devices, sizes, output_device)
        self.output_device = split.output
        for i, (begin, size, device) in enumerate(zip(split.begins, split.sizes, split.devices)):
            self._part(f"weight_{i}", whole.weight, 0, begin, size, device)
            self._part(f"bias_{i}", whole.bias, 0, begin, size, device)

    def forward_parts(self, input: Tensor) -> List[Tensor]:
        """Each device's features of the result, where they were computed."""
        weights = self.weights
        _check_features("ColumnParallelLinear", input, weights[0].size(1))
        return [F.linear(input.to(w.device), w, b) for w, b in zip(weights, self._all("bias"))]

    def forward(self, input: Tensor) -> Tensor:
        """The whole result, on the output device."""
        return athanor.cat([part.to(self.output_device) for part in self.forward_parts(input)], -1)

    def extra_repr(self) -> str:
        """What print() says of it."""
        return f"in_features={self.weights[0].size(1)}, out_features={self._places('weight', 0)}"


class RowParallelLinear(_SplitLayer):
    """Linear with its inputs split; sizes count input features. Partial sums are added on the output device in the order of
    the devices."""

    def __init__(self, whole: Linear, devices: Any = None, sizes: Optional[Sequence[int]] = None, output_device: Any = None):
        super().__init__()
        split = _Split("RowParallelLinear", "input features", whole.weight.size(1), devices, sizes, output_device)
        self.output_device = split.output
        for i, (begin, size, device) in enumerate(zip(split.begins, split.sizes, split.devices)):
            self._part(f"weight_{i}", whole.weight, 1, begin, size, device)
        self._part("bias", whole.bias, 0, 0, whole.weight.size(0), split.output)

    def forward_parts(self, parts: Sequence[Tensor]) -> Tensor:
        """Of an input whose features are split already, as ColumnParallelLinear leaves them. ValueError if the parts do not
        have the features of the devices."""
        weights = self.weights
        if len(parts) != len(weights):
            raise ValueError(f"RowParallelLinear: got {len(parts)} parts of an input for {len(weights)} devices")
        for i, (part, w) in enumerate(zip(parts, weights)):
            if part.dim() == 0 or part.size(-1) != w.size(1):
                raise ValueError(f"RowParallelLinear: part {i} of the input should have {w.size(1)} features, got shape "
                                 f"{list(part.shape)}; both layers need the same sizes")
        return self._sum([F.linear(p.to(w.device), w) for p, w in zip(parts, weights)], self._parameters["bias"])

    def forward(self, input: Tensor) -> Tensor:
        """The result, on the output device."""
        sizes = [w.size(1) for w in self.weights]
        _check_features("RowParallelLinear", input, sum(sizes))
        return self.forward_parts(input.split(sizes, -1))

    def extra_repr(self) -> str:
        """What print() says of it."""
        return f"in_features={self._places('weight', 1)}, out_features={self.weights[0].size(0)}"


class ParallelEmbedding(_SplitLayer):
    """Embedding with its rows split; sizes count rows. Not for tables with max_norm, scale_grad_by_freq or sparse (ValueError)."""

    def __init__(self, whole: Embedding, devices: Any = None, sizes: Optional[Sequence[int]] = None, output_device: Any = None):
        super().__init__()
        if whole.max_norm is not None or whole.scale_grad_by_freq or whole.sparse:
            raise ValueError("ParallelEmbedding: a table with max_norm, scale_grad_by_freq or sparse cannot be split")
        rows = whole.weight.size(0)
        split = _Split("ParallelEmbedding", "rows", rows, devices, sizes, output_device)
        self.output_device = split.output
        self.padding_idx = whole.padding_idx
        if self.padding_idx is not None and self.padding_idx < 0:
            self.padding_idx += rows
        for i, (begin, size, device) in enumerate(zip(split.begins, split.sizes, split.devices)):
            self._part(f"weight_{i}", whole.weight, 0, begin, size, device)

    def forward(self, indices: Tensor) -> Tensor:
        """The rows of these numbers, on the output device."""
        parts, begin, weights = [], 0, self.weights
        for i, w in enumerate(weights):
            rows = w.size(0)
            padding = None if self.padding_idx is None else self.padding_idx - begin
            here = indices.to(w.device) - begin
            # Numbers below 0 and beyond the table are left to the first and the last device, which refuse them.
            elsewhere = None
            if i > 0:
                elsewhere = here < 0
            if i + 1 < len(weights):
                elsewhere = here >= rows if elsewhere is None else elsewhere | (here >= rows)
            found = F.embedding(here if elsewhere is None else here.masked_fill(elsewhere, 0), w,
                                padding if padding is not None and 0 <= padding < rows else None)
            parts.append(found if elsewhere is None else found.masked_fill(elsewhere.unsqueeze(-1), 0))
            begin += rows
        return self._sum(parts, None)

    def extra_repr(self) -> str:
        """What print() says of it."""
        return f"{self._places('weight', 0)}, embedding_dim={self.weights[0].size(1)}"


def _open_places(attention: Optional[Tensor], padding: Optional[Tensor]) -> Optional[Tensor]:
    """Both masks as scaled_dot_product_attention wants them: bool, true where open, or added to the scores."""
    name = "ParallelMultiheadAttention"
    if padding is not None and (padding.dim() != 2 or padding.dtype != athanor.bool):
        raise RuntimeError(f"{name}: expected a key_padding_mask (N, S) of bool, got {list(padding.shape)} of {padding.dtype}")
    if attention is not None and attention.dim() != 2:
        raise RuntimeError(f"{name}: expected an attn_mask (L, S), got shape {list(attention.shape)}")
    ignored = None if padding is None else padding[:, None, None, :]
    if attention is None:
        return None if ignored is None else ~ignored
    if attention.dtype == athanor.bool:
        return ~(attention if ignored is None else attention | ignored)
    if ignored is None:
        return attention
    return attention.expand(ignored.size(0), 1, *attention.shape).masked_fill(ignored, -athanor.inf)


class ParallelMultiheadAttention(_SplitLayer):
    """MultiheadAttention with its heads split; sizes count heads. Not for add_bias_kv or add_zero_attn (ValueError)."""

    def __init__(self, whole: MultiheadAttention, devices: Any = None, sizes: Optional[Sequence[int]] = None,
                 output_device: Any = None):
        super().__init__()
        if whole.bias_k is not None or whole.add_zero_attn:
            raise ValueError("ParallelMultiheadAttention: attention with add_bias_kv or add_zero_attn cannot be split")
        split = _Split("ParallelMultiheadAttention", "heads", whole.num_heads, devices, sizes, output_device)
        self.output_device = split.output
        self.head_dim, self.dropout, self.batch_first = whole.head_dim, whole.dropout, whole.batch_first
        embed, together = whole.embed_dim, whole.in_proj_weight is not None
        separate = (whole.q_proj_weight, whole.k_proj_weight, whole.v_proj_weight)
        for i, (first, count, device) in enumerate(zip(split.begins, split.sizes, split.devices)):
            begin, size = first * self.head_dim, count * self.head_dim
            for which, name in enumerate("qkv"):
                weight, at = (whole.in_proj_weight, which * embed + begin) if together else (separate[which], begin)
                self._part(f"{name}_weight_{i}", weight, 0, at, size, device)
            for which, name in enumerate("qkv"):
                self._part(f"{name}_bias_{i}", whole.in_proj_bias, 0, which * embed + begin, size, device)
            self._part(f"out_weight_{i}", whole.out_proj.weight, 1, begin, size, device)
        self._part("out_bias", whole.out_proj.bias, 0, 0, embed, split.output)

    def _of_heads(self, i: int, inputs: Sequence[Tensor], mask: Optional[Tensor], is_causal: bool) -> Tensor:
        out: Any = self._parameters[f"out_weight_{i}"]
        split = []
        for name, x in zip("qkv", inputs):
            y = F.linear(x.to(out.device), self._parameters[f"{name}_weight_{i}"], self._parameters[f"{name}_bias_{i}"])
            split.append(y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2))
        y = F.scaled_dot_product_attention(*split, attn_mask=None if mask is None else mask.to(out.device),
                                           dropout_p=self.dropout if self.training else 0.0, is_causal=is_causal)
        return F.linear(y.transpose(1, 2).flatten(2), out)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, is_causal: bool = False,
                key_padding_mask: Optional[Tensor] = None) -> Tensor:
        """query (L, N, E), key (S, N, K), value (S, N, V), or batch first as the whole layer has it. attn_mask (L, S): bool, true
        where closed, or floating, added to the scores. is_causal masks what comes later, without other masks.
        key_padding_mask (N, S): bool, true where a key is ignored."""
        name = "ParallelMultiheadAttention"
        for part, t in zip("qkv", (query, key, value)):
            if t.dim() != 3:
                raise RuntimeError(f"{name}: query, key and value should be 3-D, got shape {list(t.shape)}")
            _check_features(name, t, self._all(f"{part}_weight")[0].size(1))
        if is_causal and (attn_mask is not None or key_padding_mask is not None):
            raise ValueError(f"{name}: is_causal stands for a mask of its own; give either it or masks")
        mask = _open_places(attn_mask, key_padding_mask)
        inputs = [t if self.batch_first else t.transpose(0, 1) for t in (query, key, value)]
        parts = [self._of_heads(i, inputs, mask, is_causal) for i in range(len(self._all("out_weight")))]
        result = self._sum(parts, self._parameters["out_bias"])
        return result if self.batch_first else result.transpose(0, 1)

    def extra_repr(self) -> str:
        """What print() says of it."""
        return (f"embed_dim={self._all('q_weight')[0].size(1)}, head_dim={self.head_dim}, features "
                f"{self._places('q_weight', 0)}")
