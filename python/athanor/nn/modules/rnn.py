"""Recurrent layers: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor
from athanor.nn import init
from athanor.nn.parameter import Parameter
from athanor.nn.utils.rnn import PackedSequence

from .module import Module
from .rnn_cell import GRUCell, LSTMCell, RNNCell, RNNCellBase

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]

_ops = _C.ops
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FUNCTIONS = {"GRU": _ops.gru, "RNN_TANH": _ops.rnn_tanh, "RNN_RELU": _ops.rnn_relu}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """The slices of dim in another order."""
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """What RNN, LSTM and GRU share. Parameters of layer k: weight_ih_lk, weight_hh_lk, bias_ih_lk, bias_hh_lk, with
    proj_size weight_hr_lk, and those of the way back with the suffix _reverse. First values: uniform within
    ±1/sqrt(hidden_size).
    """

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_options()
        gates = _GATES.get(mode)
        if gates is None:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        directions = 2 if bidirectional else 1
        state = proj_size if proj_size > 0 else hidden_size
        for layer in range(num_layers):
            for direction in range(directions):
                suffix = f"_l{layer}" + ("_reverse" if direction == 1 else "")
                width = input_size if layer == 0 else state * directions
                rows = gates * hidden_size
                shapes: dict[str, tuple] = {"weight_ih": (rows, width), "weight_hh": (rows, state)}
                if bias:
                    shapes["bias_ih"] = shapes["bias_hh"] = (rows,)
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(athanor.empty(shape, device=device, dtype=dtype)))
                names = [name + suffix for name in shapes]
                self._flat_weights_names += names
                self._all_weights.append(names)
        self.reset_parameters()

    def _check_options(self) -> None:
        p = self.dropout
        if not isinstance(p, numbers.Number) or not 0 <= p <= 1 or isinstance(p, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if p > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={p} and num_layers={self.num_layers}"
            )
        for name in ("bias", "batch_first"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} should be of type bool, got: {type(getattr(self, name)).__name__}")
        for name in ("input_size", "hidden_size", "num_layers"):
            if not isinstance(getattr(self, name), int):
                raise TypeError(f"{name} should be of type int, got: {type(getattr(self, name)).__name__}")
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")

    @property
    def _flat_weights(self) -> list:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, layer by layer and direction by direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: the weights are read where they are."""

    def reset_parameters(self) -> None:
        """Draws first values."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _check_input(self, input: Tensor, packed: bool) -> None:
        if packed:
            if input.dim() != 2:
                raise RuntimeError(f"input must have 2 dimensions, got {input.dim()}")
        elif input.dim() not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not athanor.is_autocast_enabled():
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def _complete_state(self, state: Any, like: Tensor, batch: int, batched: bool, which: str, width: int) -> Tensor:
        """A state as (layers · directions, batch, width): zeros if None. RuntimeError if it has another shape."""
        expected = (self.num_layers * (2 if self.bidirectional else 1), batch, width)
        if state is None:
            return athanor.zeros(expected, dtype=like.dtype, device=like.device)
        if not batched:
            if state.dim() != 2:
                raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {state.dim()}-D tensor")
            state = state.unsqueeze(1)
        elif state.dim() != 3:
            raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got {state.dim()}-D tensor")
        if tuple(state.shape) != expected:
            raise RuntimeError(f"Expected hidden{which} size {expected}, got {list(state.shape)}")
        return state

    def _run(self, input: Any, states: list) -> tuple[Any, list[Tensor]]:
        """The result, packed if the input is, and the last states."""
        packed = isinstance(input, PackedSequence)
        data = input.data if packed else input
        self._check_input(data, packed)
        batched = packed or data.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if not batched:
            data = data.unsqueeze(batch_dim)
        batch = int(input.batch_sizes[0]) if packed else data.size(batch_dim)
        lstm = self.mode == "LSTM"
        for i, state in enumerate(states):
            width = self.proj_size if i == 0 and self.proj_size > 0 else self.hidden_size
            states[i] = self._complete_state(state, data, batch, batched, f"[{i}]" if lstm else "", width)
        if packed and input.sorted_indices is not None:
            states = [apply_permutation(s, input.sorted_indices) for s in states]
        out, *last = self._call_op(data, input.batch_sizes if packed else None, states)
        if packed:
            if input.unsorted_indices is not None:
                last = [apply_permutation(s, input.unsorted_indices) for s in last]
            out = PackedSequence(out, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        elif not batched:
            out = out.squeeze(batch_dim)
            last = [s.squeeze(1) for s in last]
        return out, last

    def _call_op(self, data: Tensor, batch_sizes: Optional[Tensor], states: list) -> tuple:
        lstm = self.mode == "LSTM"
        function = _ops.lstm if lstm else _FUNCTIONS[self.mode]
        hx = states if lstm else states[0]
        rest = (self._flat_weights, self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional)
        if batch_sizes is None:
            return function(data, hx, *rest, self.batch_first)
        return function(data, batch_sizes, hx, *rest)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """input (L, N, input_size), (N, L, input_size) with batch_first, (L, input_size), or a PackedSequence; hx
        (layers · directions, N, hidden_size), zeros if None. Gives the states of the last layer at every step, and the
        last state of every layer.
        """
        out, last = self._run(input, [hx])
        return out, last[0]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text


class RNN(RNNBase):
    """The Elman network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. nonlinearity: "tanh" or "relu"."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self_mode = "RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU"
        super().__init__(self_mode, input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory. proj_size: the state is projected to so many features (Sak et al., 2014)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """As RNNBase.forward, with states (h, c): h (layers · directions, N, proj_size or hidden_size), c (…,
        hidden_size)."""
        out, last = self._run(input, [None, None] if hx is None else list(hx))
        return out, (last[0], last[1])


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al., 2014)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)
