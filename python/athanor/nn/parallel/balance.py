"""Where to cut a network for a pipeline: layers of each stage, as Pipeline's balance."""
from __future__ import annotations

import time
from typing import Any, Callable, List, Sequence

import athanor
from athanor import Tensor
from athanor._C import _distributed as _core

from ..modules.container import Sequential

__all__ = ["balance_by_cost", "balance_by_size", "balance_by_time"]


def balance_by_cost(costs: Sequence[float], stages: int) -> List[int]:
    """The cut of layers with these costs into contiguous parts whose greatest sum is least. Raises ValueError if there are
    fewer layers than stages."""
    return _core.balance_by_cost([float(c) for c in costs], stages)


def _through(layers: Sequential, sample: Tensor, visit: Callable[[Any, Tensor], Tensor]) -> None:
    """Calls visit(layer, input) for each layer with the output of the one before; buffers are put back."""
    kept = [(b, b.detach().clone()) for b in layers.buffers()]
    try:
        x = sample.detach().clone()
        for layer in layers:
            x = visit(layer, x).detach()
    finally:
        with athanor.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)


def balance_by_time(layers: Sequential, sample: Tensor, stages: int, repeats: int = 3) -> List[int]:
    """Measures each layer's forward and backward for `sample`, where the layers are, and cuts by that. The layers must be on
    one device; their gradients and buffers are as before afterwards. Raises ValueError for repeats below one."""
    if repeats <= 0:
        raise ValueError(f"balance_by_time: repeats must be positive, got {repeats}")
    costs: List[float] = []

    def visit(layer: Any, x: Tensor) -> Tensor:
        least = float("inf")
        for i in range(repeats + 1):  # the first is a rehearsal
            with athanor.enable_grad():
                wanted = [p for p in layer.parameters() if p.requires_grad]
                given = x
                if x.is_floating_point():
                    given = x.detach().requires_grad_()
                    wanted.append(given)
                given = given.clone()  # for layers that work in place
                _core.synchronize(given.device)
                begin = time.perf_counter()
                y = layer(given)
                if y.requires_grad:
                    athanor.autograd.grad(y, wanted, athanor.ones_like(y), allow_unused=True)
                _core.synchronize(y.device)
            if i > 0:
                least = min(least, time.perf_counter() - begin)
        costs.append(least)
        return y

    _through(layers, sample, visit)
    return balance_by_cost(costs, stages)


def balance_by_size(layers: Sequential, sample: Tensor, stages: int) -> List[int]:
    """Cuts by the bytes of parameters and of the layers' outputs for `sample`."""
    costs: List[float] = []

    def visit(layer: Any, x: Tensor) -> Tensor:
        with athanor.no_grad():
            y = layer(x)
        costs.append(float(sum(t.numel() * t.element_size() for t in (y, *layer.parameters()))))
        return y

    _through(layers, sample, visit)
    return balance_by_cost(costs, stages)
