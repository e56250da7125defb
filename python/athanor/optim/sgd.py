"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

import athanor
from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class SGD(FusedOptimizer):
    """Gradient descent, with momentum as in Sutskever et al. (2013) in PyTorch's form: lr stands outside the velocity.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        momentum: share of the velocity that is kept; 0 keeps no state.
        dampening: share of the gradient that does not enter the velocity.
        weight_decay: factor of the parameter that is added to the gradient.
        nesterov: look ahead along the velocity; needs a momentum and no dampening.
        maximize: climb instead.
        foreach, fused: accepted; the step is always one fused pass.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        differentiable: bool = False,
        fused: Optional[bool] = None,
    ) -> None:
        check_options(lr=lr)
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        check_options(weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        options = (
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            float(group["weight_decay"]),
            bool(group["nesterov"]),
            bool(group["maximize"]),
        )
        if group["momentum"] == 0:
            _optim.sgd(params, grads, [], False, *options)
            return
        # The first velocity is the gradient itself, not a share of it.
        begun: tuple = ([], [], [])
        fresh: tuple = ([], [], [])
        for p, grad in zip(params, grads):
            state = self.state[p]
            buffer = state.get("momentum_buffer")
            lists = begun
            if buffer is None:
                buffer = state["momentum_buffer"] = athanor.empty_like(p, requires_grad=False)
                lists = fresh
            lists[0].append(p)
            lists[1].append(grad)
            lists[2].append(buffer)
        if begun[0]:
            _optim.sgd(*begun, False, *options)
        if fresh[0]:
            _optim.sgd(*fresh, True, *options)
