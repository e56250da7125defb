"""Schedules that rise and fall: warm restarts, cycles, one cycle."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Union

from athanor.optim._schedule import LRScheduler, per_group, set_rate
from athanor.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the initial rate to ``eta_min``, the first ``T_0`` epochs long, each ``T_mult`` times as long as
    the one before. Loshchilov & Hutter, "SGDR", ICLR 2017.

    ``step(epoch)`` takes fractions of epochs: ``step(epoch + batch / batches)``.

    Raises:
        ValueError: a length below 1, or not a whole number.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> List[float]:
        self._warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: Optional[float] = None) -> None:
        """Sets the rates of the next epoch, or of ``epoch``, which need not be a whole number."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._place(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            values = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, value in zip(self.optimizer.param_groups, values):
            set_rate(group, value)
        self._last_lr = self._rates()

    def _place(self, epoch: float) -> None:
        """Finds the cycle in which ``epoch`` lies."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_i, self.T_cur = self.T_0, epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


def _check_momentum(optimizer: Optimizer, what: str) -> bool:
    """Whether the groups keep their momentum as the first beta."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(f"optimizer must support momentum or beta1 with `cycle_momentum` option enabled{what}")
    return "betas" in optimizer.defaults



def _set_momentum(group: Dict[str, Any], beta1: bool, value: float) -> None:
    if beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """lr goes up and down between two bounds, momentum the other way (Smith, "Cyclical learning rates", 2017).

    Args:
        optimizer: whose groups are changed; has a momentum or betas if ``cycle_momentum``.
        base_lr, max_lr: bounds, one or one per group.
        step_size_up, step_size_down: steps of a rise and of a fall.
        mode: "triangular", "triangular2" (half the height each cycle) or "exp_range" (times gamma ** step).
        scale_fn, scale_mode: a function instead, of the "cycle" or of the "iterations".

    Raises:
        ValueError: another mode, or lists of another length.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Union[float, List[float]],
        max_lr: Union[float, List[float]],
        step_size_up: int = 2000,
        step_size_down: Optional[int] = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Optional[Callable[[float], float]] = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Union[float, List[float]] = 0.8,
        max_momentum: Union[float, List[float]] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, base_lrs):
                set_rate(group, lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _check_momentum(optimizer, "")
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for group, low, high in zip(optimizer.param_groups, self.base_momentums, self.max_momentums):
                    _set_momentum(group, self.use_beta1, high)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Height of the cycle, or of the step, numbered ``x``."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> List[float]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums)
            for group, low, high in bounds:
                _set_momentum(group, self.use_beta1, high - (high - low) * share * scale)
        return [low + (high - low) * share * scale for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> Dict[str, Any]:
        """Everything but the optimizer; of a ``scale_fn`` its attributes, if it is an object."""
        state = super().state_dict()
        f = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = dict(f.__dict__) if f is not None and _is_object(f) else None
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        attributes = state_dict.pop("_scale_fn_custom", None)
        super().load_state_dict(state_dict)
        if attributes and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)


def _is_object(f: Callable) -> bool:
    import types

    return hasattr(f, "__dict__") and not isinstance(f, types.FunctionType)


class OneCycleLR(LRScheduler):
    """One rise of the rate and one long fall, momentum the other way (Smith & Topin, "Super-convergence", 2018).

    Call ``step()`` after every batch.

    Args:
        optimizer: whose groups are changed; has a momentum or betas if ``cycle_momentum``.
        max_lr: height, one or one per group.
        total_steps: length; or else ``epochs`` times ``steps_per_epoch``.
        pct_start: share of the rise.
        anneal_strategy: "cos" or "linear".
        base_momentum, max_momentum: bounds of the momentum.
        div_factor: the first rate is ``max_lr / div_factor``.
        final_div_factor: the last one is the first over this.
        three_phase: fall to the first rate as fast as the rise, then to the last.

    Raises:
        ValueError: no length, another strategy, a share outside 0 to 1; a step beyond the last.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Union[float, List[float]],
        total_steps: Optional[int] = None,
        epochs: Optional[int] = None,
        steps_per_epoch: Optional[int] = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Union[float, List[float]] = 0.85,
        max_momentum: Union[float, List[float]] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        heights = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, height in zip(optimizer.param_groups, heights):
                group["initial_lr"] = height / div_factor
                group["max_lr"] = height
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _check_momentum(optimizer, "")
            lows = per_group("base_momentum", optimizer, base_momentum)
            highs = per_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for group, low, high in zip(optimizer.param_groups, lows, highs):
                    _set_momentum(group, self.use_beta1, high)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> List[float]:
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        start_step = 0.0
        for i, phase in enumerate(self._schedule_phases):
            if step <= phase["end_step"] or i == len(self._schedule_phases) - 1:
                share = (step - start_step) / (phase["end_step"] - start_step)
                break
            start_step = phase["end_step"]
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                low_high = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                _set_momentum(group, self.use_beta1, low_high)
        return rates


def _total_steps(total_steps: Optional[int], epochs: Optional[int], steps_per_epoch: Optional[int]) -> int:
    if total_steps is not None:
        if total_steps <= 0 or not isinstance(total_steps, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        return total_steps
    if epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if not isinstance(epochs, int) or epochs <= 0:
        raise ValueError(f"Expected positive integer epochs, but got {epochs}")
    if not isinstance(steps_per_epoch, int) or steps_per_epoch <= 0:
        raise ValueError(f"Expected positive integer steps_per_epoch, but got {steps_per_epoch}")
    return epochs * steps_per_epoch


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> List[Dict[str, Any]]:
    """Where each part of the cycle ends and between which entries of a group it goes."""

    def phase(end_step: float, start: str, end: str, momentum: str, last_momentum: str) -> Dict[str, Any]:
        return {
            "end_step": end_step,
            "start_lr": start,
            "end_lr": end,
            "start_momentum": momentum,
            "end_momentum": last_momentum,
        }

    rise = phase(float(pct_start * total_steps) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three_phase:
        return [rise, phase(total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    fall = float(2 * pct_start * total_steps) - 2
    return [
        rise,
        phase(fall, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        phase(total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]
