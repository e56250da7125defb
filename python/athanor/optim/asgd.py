"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

import athanor
from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class ASGD(FusedOptimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky, 1992). The average is the state "ax".

    Args:
        params: parameters or groups of them.
        lr: learning rate at the first step.
        lambd: decay of the parameters, and of the rate.
        alpha: power with which the rate falls.
        t0: step at which averaging starts.
        weight_decay: factor of the parameter that is added to the gradient.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_options(lr=lr, weight_decay=weight_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                lambd=lambd,
                alpha=alpha,
                t0=t0,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        def begin(_: Tensor, state: dict) -> None:
            state.setdefault("eta", athanor.full((), float(group["lr"]), dtype=athanor.float32))
            state.setdefault("mu", athanor.ones((), dtype=athanor.float32))

        steps, etas, mus, averages = self._states(params, ("step", "eta", "mu", "ax"), begin)
        _optim.asgd(
            params,
            grads,
            [averages],
            steps,
            etas,
            mus,
            float(group["lr"]),
            float(group["lambd"]),
            float(group["alpha"]),
            float(group["t0"]),
            float(group["weight_decay"]),
            bool(group["maximize"]),
        )
