"""Schedules of schedules, and the one that waits for a plateau."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from typing import Any, Dict, List, Optional, Sequence, Union

from athanor.optim._schedule import LRScheduler, per_group, rate, set_rate
from athanor.optim.optimizer import Optimizer


def _check_schedulers(name: str, schedulers: Sequence[Any], optimizer: Optional[Optimizer]) -> Optimizer:
    if len(schedulers) < 1:
        raise ValueError(f"{name} expects at least one scheduler, but got no scheduler.")
    optimizer = optimizer or schedulers[0].optimizer
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
            )
        if optimizer is not scheduler.optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {i} for another optimizer."
            )
    return optimizer


class _ComposedSchedule(LRScheduler):
    """Base of schedules that save the states of others with their own."""

    _schedulers: List[Any]

    def state_dict(self) -> Dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        saved = state_dict.pop("_schedulers")
        self.__dict__.update(state_dict)
        for scheduler, state in zip(self._schedulers, saved):
            scheduler.load_state_dict(state)


class SequentialLR(_ComposedSchedule):
    """One schedule after the other; the next begins, at its epoch 0, at each of the ``milestones``.

    Raises:
        ValueError: schedules of several optimizers, or not one milestone fewer than schedules.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: List[LRScheduler], milestones: List[int], last_epoch: int = -1
    ) -> None:
        _check_schedulers("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = list(schedulers)
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # The schedules set their first rates when they were made; only the first one's shall count.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        for scheduler in self._schedulers:
            _take_back(scheduler)
        self._schedulers[0]._initial_step()
        self._last_lr = list(schedulers[0].get_last_lr())

    def _initial_step(self) -> None:
        self._schedulers[0]._initial_step()

    def step(self) -> None:  # type: ignore[override]
        """Sets the next epoch's rates."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            _restart(scheduler)
        else:
            scheduler.step()
        self._last_lr = list(scheduler.get_last_lr())


def _take_back(scheduler: LRScheduler) -> None:
    """Before the first epoch again; in schedules of schedules, too."""
    if isinstance(scheduler, _ComposedSchedule):
        for inner in scheduler._schedulers:
            _take_back(inner)
    else:
        scheduler.last_epoch -= 1


def _restart(scheduler: LRScheduler) -> None:
    """Sets the rates of the schedule's epoch 0, whatever the present ones are."""
    if isinstance(scheduler, _ComposedSchedule):
        scheduler.last_epoch = 0
        for group in scheduler.optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        parts = scheduler._schedulers[:1] if isinstance(scheduler, SequentialLR) else scheduler._schedulers
        for inner in parts:
            _restart(inner)
        scheduler._last_lr = scheduler._rates()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is the program that need not name epochs
        scheduler.step(0)


class ChainedScheduler(_ComposedSchedule):
    """Several schedules at once: each goes on from the rates that the one before set.

    Raises:
        ValueError: no schedules, or of several optimizers.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optional[Optimizer] = None) -> None:
        self.optimizer = _check_schedulers("ChainedScheduler", schedulers, optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = self._rates()

    def _initial_step(self) -> None:
        for scheduler in self._schedulers:
            scheduler._initial_step()

    def step(self) -> None:  # type: ignore[override]
        """Sets the next epoch's rates."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()


class ReduceLROnPlateau(LRScheduler):
    """lr is multiplied by ``factor`` when a metric has not become better for ``patience`` epochs.

    Args:
        optimizer: whose groups are changed.
        mode: "min" if less is better, "max" if more is.
        factor: below 1.
        patience: epochs without progress that are let pass.
        threshold, threshold_mode: what counts as better: by this share ("rel") or by this amount ("abs").
        cooldown: epochs after a reduction in which nothing is counted.
        min_lr: bound, one or one per group.
        eps: smaller reductions are left out.

    Raises:
        ValueError: a factor of 1 or more, an unknown mode, a list of another length.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Union[float, List[float]] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.factor = factor
        self.optimizer = optimizer
        self.default_min_lr = min_lr if not isinstance(min_lr, (list, tuple)) else None
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._rates()
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the steps after a reduction are still being waited out."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether `a` beats `best` by more than the threshold."""
        if self.mode == "min":
            return a < (best * (1.0 - self.threshold) if self.threshold_mode == "rel" else best - self.threshold)
        return a > (best * (1.0 + self.threshold) if self.threshold_mode == "rel" else best + self.threshold)

    def step(self, metrics: Any, epoch: Optional[int] = None) -> None:  # type: ignore[override]
        """Takes in an epoch's metric, a number or a tensor of one, and reduces the rates if it is time."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(
                "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. "
                "Please use `scheduler.step()` to step the scheduler.",
                UserWarning,
                stacklevel=2,
            )
        self.last_epoch = epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    "The number of param groups in the `optimizer` "
                    f"({len(groups)}) differs from when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), "
                    "usually due to a new param group being added to the optimizer. Please modify the `min_lrs` field "
                    "to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, low in zip(groups, self.min_lrs):
            old = rate(group)
            new = max(old * self.factor, low)
            if old - new > self.eps:
                set_rate(group, new)
