"""Adagrad."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

import athanor
from athanor import Tensor
from athanor._C import _optim
from athanor.optim.optimizer import FusedOptimizer, ParamsT, check_options


class Adagrad(FusedOptimizer):
    """Adagrad (Duchi et al., 2011).

    Args:
        params: parameters or groups of them.
        lr: learning rate at the first step; it falls as ``lr / (1 + t * lr_decay)``.
        weight_decay: factor of the parameter that is added to the gradient.
        initial_accumulator_value: what the sums of squares begin with.
        eps: added to the denominator.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: Optional[bool] = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
    ) -> None:
        check_options(lr=lr)
        if not 0.0 <= lr_decay:
            raise ValueError(f"Invalid lr_decay value: {lr_decay}")
        check_options(weight_decay=weight_decay)
        if not 0.0 <= initial_accumulator_value:
            raise ValueError(f"Invalid initial_accumulator_value value: {initial_accumulator_value}")
        check_options(eps=eps)
        super().__init__(
            params,
            dict(
                lr=lr,
                lr_decay=lr_decay,
                eps=eps,
                weight_decay=weight_decay,
                initial_accumulator_value=initial_accumulator_value,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                fused=fused,
            ),
        )
        # PyTorch makes these at once, and programs read them before the first step.
        for group in self.param_groups:
            self._states(group["params"], ("step", "sum"), self._sum_for(group))

    @staticmethod
    def _sum_for(group: Dict[str, Any]) -> Any:
        def begin(p: Tensor, state: dict) -> None:
            if "sum" not in state:
                state["sum"] = athanor.full_like(p, group["initial_accumulator_value"], requires_grad=False)

        return begin

    def share_memory(self) -> None:
        """Moves the sums into memory that child processes share."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        steps, sums = self._states(params, ("step", "sum"), self._sum_for(group))
        _optim.adagrad(
            params,
            grads,
            [sums],
            steps,
            float(group["lr"]),
            float(group["lr_decay"]),
            float(group["weight_decay"]),
            float(group["eps"]),
            bool(group["maximize"]),
        )
