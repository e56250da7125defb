"""AdamW."""

from __future__ import annotations

from typing import Optional, Tuple, Union

from athanor import Tensor
from athanor.optim.adam import Adam
from athanor.optim.optimizer import ParamsT


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters and stays out of the averages (Loshchilov & Hutter, 2019).

    Arguments and errors as :class:`Adam`'s; ``weight_decay`` is 0.01 unless given.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
