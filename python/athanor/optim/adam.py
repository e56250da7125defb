"""Adam."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class Adam(FusedOptimizer):
    """Adam (Kingma & Ba, 2015), and AMSGrad (Reddi et al., 2018).

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        betas: what the averages of the gradient and of its square keep in a step.
        eps: added to the denominator.
        weight_decay: factor of the parameter that is added to the gradient, or, with ``decoupled_weight_decay``, times
            lr the share by which the parameter shrinks.
        amsgrad: divide by the largest average square so far.
        maximize: climb instead.
        foreach, fused, capturable: accepted; the step is always one fused pass (``capturable=True`` is refused).

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_options(lr, eps, weight_decay, betas)
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                amsgrad=amsgrad,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
                fused=fused,
                decoupled_weight_decay=decoupled_weight_decay,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        names: Tuple[str, ...] = ("step", "exp_avg", "exp_avg_sq")
        if group["amsgrad"]:
            names += ("max_exp_avg_sq",)
        steps, *states = self._states(params, names)
        beta1, beta2 = group["betas"]
        _optim.adam(
            params,
            grads,
            states,
            steps,
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["eps"]),
            float(group["weight_decay"]),
            bool(group["amsgrad"]),
            bool(group.get("decoupled_weight_decay", False)),
            bool(group["maximize"]),
        )
