"""RAdam."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class RAdam(FusedOptimizer):
    """Adam that divides only once the average square can be trusted (Liu et al., 2020).

    Options as :class:`Adam`'s. Raises ValueError for one out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr, eps, weight_decay, betas)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                decoupled_weight_decay=decoupled_weight_decay,
                differentiable=differentiable,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        steps, *states = self._states(params, ("step", "exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        _optim.radam(
            params,
            grads,
            states,
            steps,
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["eps"]),
            float(group["weight_decay"]),
            bool(group["decoupled_weight_decay"]),
            bool(group["maximize"]),
        )
