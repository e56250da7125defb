"""Adafactor."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple, Union

import athanor
from athanor import Tensor
from athanor.optim.optimizer import Optimizer, ParamsT, check_options


class Adafactor(Optimizer):
    """Adafactor (Shazeer & Stern, 2018): second moments of matrices are kept as a row and a column, and steps are
    relative to the size of a parameter.

    Args:
        params: parameters or groups of them.
        lr: the greatest relative step.
        beta2_decay: power of the step by which the share of new squares falls; negative.
        eps: smallest square of a gradient (None: the dtype's resolution) and smallest size of a parameter.
        d: a step's root mean square is cut to this.
        weight_decay: share of the parameter that is taken off, times lr.
        foreach: accepted; parameters are updated one after another.
        maximize: climb instead.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-2,
        beta2_decay: float = -0.8,
        eps: Tuple[Optional[float], float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: Optional[bool] = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        check_options(weight_decay=weight_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                beta2_decay=beta2_decay,
                eps=eps,
                d=d,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
            ),
        )

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One update of every parameter that has a gradient.

        Args:
            closure: called first, with gradients on, to compute the loss anew; step returns what it returns.
        """
        loss = None
        if closure is not None:
            with athanor.enable_grad():
                loss = closure()
        with athanor.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(group, p, p.grad)
        return loss

    def _begin(self, p: Tensor) -> Dict[str, Any]:
        state: Dict[str, Any] = self.state[p]
        if len(state) == 0:
            state["step"] = athanor.zeros((), dtype=athanor.float32)
            if p.dim() > 1:
                rows, columns = list(p.shape), list(p.shape)
                rows[-1] = columns[-2] = 1
                state["row_var"] = p.new_zeros(rows)
                state["col_var"] = p.new_zeros(columns)
            else:
                state["variance"] = athanor.zeros_like(p, requires_grad=False)
        return state

    def _update(self, group: Dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self._begin(p)
        if group["maximize"]:
            grad = -grad
        smallest, least_size = group["eps"]
        if smallest is None:
            smallest = athanor.finfo(p.dtype).eps
        state["step"] += 1
        count = state["step"].item()
        fresh = count ** group["beta2_decay"]
        lr = float(group["lr"])
        relative = max(least_size, _root_mean_square(p)) * min(lr, 1 / count**0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            squares = grad.square()
            rows.lerp_(squares.mean(-1, keepdim=True), fresh)
            columns.lerp_(squares.mean(-2, keepdim=True), fresh)
            variance = rows @ columns
            variance.div_(rows.mean(-2, keepdim=True).clamp_(min=smallest))
        else:
            state["variance"].lerp_(grad.square(), fresh)
            variance = state["variance"].clone()
        update = variance.clamp_(min=smallest * smallest).rsqrt_().mul_(grad)
        p.add_(update, alpha=-relative / max(1.0, _root_mean_square(update) / group["d"]))


def _root_mean_square(t: Tensor) -> float:
    return t.norm(2).item() / max(t.numel(), 1) ** 0.5
