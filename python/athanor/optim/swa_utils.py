"""Averages of weights: stochastic weight averaging (Izmailov et al., 2018) and exponential averages."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any, Callable, Iterable, List, Optional, Union

import athanor
from athanor import Tensor
from athanor.nn import Module
from athanor.optim._schedule import LRScheduler, per_group, set_rate
from athanor.optim.optimizer import Optimizer

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """A function that averages lists of parameters, the average keeping the share ``decay``."""
    _check_decay(decay)

    def update(averages: List[Tensor], models: List[Tensor], _: Any) -> None:
        with athanor.no_grad():
            for average, model in zip(averages, models):
                _lerp(average, model, 1 - decay)

    return update


def get_swa_multi_avg_fn() -> Callable:
    """A function that averages lists of parameters, all models counting alike."""

    def update(averages: List[Tensor], models: List[Tensor], count: Any) -> None:
        with athanor.no_grad():
            weight = 1 / (float(count) + 1)
            for average, model in zip(averages, models):
                _lerp(average, model, weight)

    return update


def _lerp(average: Tensor, model: Tensor, weight: float) -> None:
    if average.is_floating_point():
        average.lerp_(model.to(average.dtype), weight)
    else:
        average.copy_(average + (model - average) * weight)


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """A function of average, parameter and count that gives the exponential average."""
    _check_decay(decay)

    def update(average: Tensor, model: Tensor, _: Any) -> Tensor:
        with athanor.no_grad():
            return decay * average + (1 - decay) * model

    return update


def get_swa_avg_fn() -> Callable:
    """A function of average, parameter and count that gives the plain average."""

    def update(average: Tensor, model: Tensor, count: Any) -> Tensor:
        with athanor.no_grad():
            return average + (model - average) / (count + 1)

    return update


class AveragedModel(Module):
    """A copy of a model whose parameters become the average of those of the models given to ``update_parameters``.

    Args:
        model: copied with its buffers.
        device: where the average lies; the model's unless given.
        avg_fn: new average of average, parameter and number of models so far.
        multi_avg_fn: the same for lists, in place. The plain average unless one of them is given.
        use_buffers: average buffers, too, instead of taking over the last model's.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Optional[Callable] = None,
        multi_avg_fn: Optional[Callable] = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", athanor.tensor(0, dtype=athanor.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _pairs(self, model: Module) -> List[tuple]:
        mine: Iterable[Tensor] = self.module.parameters()
        theirs: Iterable[Tensor] = model.parameters()
        if self.use_buffers:
            mine = itertools.chain(mine, self.module.buffers())
            theirs = itertools.chain(theirs, model.buffers())
        return [(a.detach(), b.detach().to(a.device)) for a, b in zip(mine, theirs)]

    def update_parameters(self, model: Module) -> None:
        """Takes ``model``'s parameters into the average; the first model's are taken over as they are."""
        pairs = self._pairs(model)
        count = int(self.n_averaged)
        with athanor.no_grad():
            if count == 0:
                for average, theirs in pairs:
                    average.copy_(theirs)
            elif self.avg_fn is None:
                update = self.multi_avg_fn or get_swa_multi_avg_fn()
                update([a for a, _ in pairs], [b for _, b in pairs], self.n_averaged)
            else:
                for average, theirs in pairs:
                    average.copy_(self.avg_fn(average, theirs, self.n_averaged))
            if not self.use_buffers:
                for mine, buffer in zip(self.module.buffers(), model.buffers()):
                    mine.detach().copy_(buffer.detach().to(mine.device))
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Measures the running statistics of ``model``'s batch norms anew over ``loader``; of a batch that is a list or
    tuple its first entry is the input."""
    from athanor.nn.modules.batchnorm import _BatchNorm

    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = {norm: norm.momentum for norm in norms}
    was_training = model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    try:
        with athanor.no_grad():
            for batch in loader:
                if isinstance(batch, (list, tuple)):
                    batch = batch[0]
                model(batch if device is None else batch.to(device))
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """lr goes from what it was to ``swa_lr`` in ``anneal_epochs`` epochs and stays there.

    Args:
        optimizer: whose groups are changed.
        swa_lr: one value or one per group.
        anneal_epochs: length of the way.
        anneal_strategy: "cos" or "linear".

    Raises:
        ValueError: another strategy, a length that is negative or no whole number, a list of another length.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Union[float, List[float]],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, lr in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> List[float]:
        self._warn_outside_step()
        # Epochs are counted from 1 here: the first call after the constructor's moves the rate already.
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before = self._share(step - 1)
        share = self._share(step)
        rates = []
        for group, lr in zip(self.optimizer.param_groups, self._rates()):
            start = group["swa_lr"] if before == 1 else (lr - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * share + start * (1 - share))
        return rates
