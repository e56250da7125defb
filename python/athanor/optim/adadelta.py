"""Adadelta."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class Adadelta(FusedOptimizer):
    """Adadelta (Zeiler, 2012).

    Args:
        params: parameters or groups of them.
        lr: factor of the update.
        rho: what the averages keep in a step.
        eps: added under the roots.
        weight_decay: factor of the parameter that is added to the gradient.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: Optional[bool] = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr=lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_options(eps=eps, weight_decay=weight_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                rho=rho,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                capturable=capturable,
                foreach=foreach,
                differentiable=differentiable,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        steps, *states = self._states(params, ("step", "square_avg", "acc_delta"))
        _optim.adadelta(
            params,
            grads,
            states,
            steps,
            float(group["lr"]),
            float(group["rho"]),
            float(group["eps"]),
            float(group["weight_decay"]),
            bool(group["maximize"]),
        )
