"""One step of a recurrent layer: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor
from athanor.nn import init
from athanor.nn.parameter import Parameter

from .module import Module

_ops = _C.ops


class RNNCellBase(Module):
    """What the cells share: weight_ih (gates · hidden, input), weight_hh (gates · hidden, hidden), bias_ih, bias_hh."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        shapes = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        for name, shape in shapes.items():
            wanted = bias or not name.startswith("bias")
            value = Parameter(athanor.empty(shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws first values: uniform within ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        if nonlinearity != "tanh":
            text += f", nonlinearity={nonlinearity}"
        return text

    def _prepare(self, input: Tensor, states: Optional[list], count: int) -> tuple[Tensor, list, bool]:
        """Input and states with a batch, and whether they had one."""
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for i, state in enumerate(states or []):
            if state.dim() not in (1, 2):
                which = "hidden" if count == 1 else f"hx[{i}]"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead")
        alone = input.dim() == 1
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(-1)} expected {self.input_size}")
        if alone:
            input = input.unsqueeze(0)
        if states is None:
            shape = (input.size(0), self.hidden_size)
            return input, [athanor.zeros(shape, dtype=input.dtype, device=input.device)] * count, alone
        states = [s.unsqueeze(0) if alone else s for s in states]
        for i, state in enumerate(states):
            if state.size(0) != input.size(0):
                raise RuntimeError(
                    f"Input batch size {input.size(0)} doesn't match hidden{i} batch size {state.size(0)}"
                )
            if state.size(1) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {state.size(1)}, expected {self.hidden_size}"
                )
        return input, states, alone


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. (N, input_size) or (input_size)."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        """The next state; hx is zeros if None."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, states, alone = self._prepare(input, None if hx is None else [hx], 1)
        cell = _ops.rnn_tanh_cell if self.nonlinearity == "tanh" else _ops.rnn_relu_cell
        out = cell(x, states[0], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return out.squeeze(0) if alone else out


class LSTMCell(RNNCellBase):
    """One step of an LSTM. (N, input_size) or (input_size)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, Tensor]:
        """The next (h, c); hx is zeros if None."""
        x, states, alone = self._prepare(input, None if hx is None else list(hx), 2)
        h, c = _ops.lstm_cell(x, states, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return (h.squeeze(0), c.squeeze(0)) if alone else (h, c)


class GRUCell(RNNCellBase):
    """One step of a GRU. (N, input_size) or (input_size)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        """The next state; hx is zeros if None."""
        x, states, alone = self._prepare(input, None if hx is None else [hx], 1)
        out = _ops.gru_cell(x, states[0], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return out.squeeze(0) if alone else out
