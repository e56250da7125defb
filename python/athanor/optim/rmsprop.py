"""RMSprop."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class RMSprop(FusedOptimizer):
    """RMSprop (Tieleman & Hinton, 2012), centered as in Graves (2013).

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        alpha: what the average square keeps in a step.
        eps: added to the denominator.
        weight_decay: factor of the parameter that is added to the gradient.
        momentum: share of the velocity that is kept.
        centered: divide by the deviation instead of the root of the average square.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr=lr, eps=eps)
        if not 0.0 <= momentum:
            raise ValueError(f"Invalid momentum value: {momentum}")
        check_options(weight_decay=weight_decay)
        if not 0.0 <= alpha:
            raise ValueError(f"Invalid alpha value: {alpha}")
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                alpha=alpha,
                eps=eps,
                centered=centered,
                weight_decay=weight_decay,
                capturable=capturable,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        names: Tuple[str, ...] = ("step", "square_avg")
        if group["centered"]:
            names += ("grad_avg",)
        if group["momentum"] > 0:
            names += ("momentum_buffer",)
        steps, *states = self._states(params, names)
        _optim.rmsprop(
            params,
            grads,
            states,
            steps,
            float(group["lr"]),
            float(group["alpha"]),
            float(group["eps"]),
            float(group["weight_decay"]),
            float(group["momentum"]),
            bool(group["centered"]),
            bool(group["maximize"]),
        )
