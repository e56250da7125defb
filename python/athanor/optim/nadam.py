"""NAdam."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import athanor
from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


def _begin(_: Tensor, state: dict) -> None:
    state.setdefault("mu_product", athanor.ones((), dtype=athanor.float32))


class NAdam(FusedOptimizer):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Options as :class:`Adam`'s, and ``momentum_decay``, which slows the growth of the momentum. Raises ValueError for
    one out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 2e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr, eps, weight_decay, betas)
        if not 0.0 <= momentum_decay:
            raise ValueError(f"Invalid momentum_decay value: {momentum_decay}")
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                momentum_decay=momentum_decay,
                decoupled_weight_decay=decoupled_weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        names = ("step", "mu_product", "exp_avg", "exp_avg_sq")
        steps, products, *states = self._states(params, names, _begin)
        beta1, beta2 = group["betas"]
        _optim.nadam(
            params,
            grads,
            states,
            steps,
            products,
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["eps"]),
            float(group["weight_decay"]),
            float(group["momentum_decay"]),
            bool(group["decoupled_weight_decay"]),
            bool(group["maximize"]),
        )
