"""Rprop."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import athanor
from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class Rprop(FusedOptimizer):
    """Resilient propagation, for gradients of the whole data: only their signs count (Riedmiller & Braun, 1993).

    Args:
        params: parameters or groups of them.
        lr: first size of a step.
        etas: factors of a step's size after a change of sign and without one.
        step_sizes: smallest and largest step.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-2,
        etas: Tuple[float, float] = (0.5, 1.2),
        step_sizes: Tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params,
            dict(
                lr=lr,
                etas=etas,
                step_sizes=step_sizes,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        def begin(p: Tensor, state: dict) -> None:
            if "step_size" not in state:
                state["step_size"] = athanor.full_like(p, float(group["lr"]), requires_grad=False)

        steps, *states = self._states(params, ("step", "prev", "step_size"), begin)
        minus, plus = group["etas"]
        smallest, largest = group["step_sizes"]
        _optim.rprop(
            params,
            grads,
            states,
            steps,
            float(minus),
            float(plus),
            float(smallest),
            float(largest),
            bool(group["maximize"]),
        )
