"""The base of the schedules."""

from __future__ import annotations

import functools
import types
import warnings
from typing import Any, Callable, Dict, List, Optional

from athanor import Tensor
from athanor.optim.optimizer import Optimizer


def rate(group: Dict[str, Any], name: str = "lr") -> float:
    """A group's rate as a number; groups may keep it in a tensor."""
    value = group[name]
    return value.item() if isinstance(value, Tensor) else value


def set_rate(group: Dict[str, Any], value: float, name: str = "lr") -> None:
    if isinstance(group.get(name), Tensor):
        group[name].fill_(float(value))
    else:
        group[name] = value.item() if isinstance(value, Tensor) else value


def per_group(name: str, optimizer: Optimizer, values: Any) -> List[Any]:
    """One value per group, from one value or from a list of as many as there are groups."""
    if not isinstance(values, (list, tuple)):
        return [values] * len(optimizer.param_groups)
    if len(values) != len(optimizer.param_groups):
        raise ValueError(f"Expected {len(optimizer.param_groups)} values for {name}, but got {len(values)}")
    return list(values)


class LRScheduler:
    """Sets the learning rates of an optimizer's groups anew at every ``step()``.

    A subclass defines ``get_lr()``, the rates for ``self.last_epoch``, which may go on from the present ones; that is
    what makes schedules of one optimizer combine.

    Args:
        optimizer: whose groups are changed.
        last_epoch: the epoch that was done last, to go on with a run; -1 to begin. Then the groups have "initial_lr".

    Raises:
        TypeError: ``optimizer`` is none.
        KeyError: a run is to go on, and a group lacks "initial_lr".
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", rate(group))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer"
                    )
        self.base_lrs: List[float] = [rate(group, "initial_lr") for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._is_initial = False
        self._get_lr_called_within_step = False
        self._last_lr: List[float] = []
        self._step_count = 0
        self._watch_step()
        self._initial_step()

    def _watch_step(self) -> None:
        # The class notes calls of step(); the note is taken back here, so that a step before the first epoch's end
        # can be told from none.
        self.optimizer._opt_called = False
        own = self.optimizer.__dict__.get("step")
        if own is not None and not getattr(own, "_notes_calls", False):
            optimizer = self.optimizer  # a program's own step, which the class does not hear of

            @functools.wraps(own)
            def noting(*args: Any, **kwargs: Any) -> Any:
                optimizer._opt_called = True
                return own(*args, **kwargs)

            noting._notes_calls = True  # type: ignore[attr-defined]
            optimizer.step = noting  # type: ignore[method-assign]

    def _initial_step(self) -> None:
        """Sets the first epoch's rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> Dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned. The rates themselves are in the optimizer's state_dict."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> List[float]:
        """The rates set last, one for each group."""
        return self._last_lr

    def get_lr(self) -> List[float]:
        """The rates for ``self.last_epoch``; called by :meth:`step`."""
        raise NotImplementedError

    def _rates(self) -> List[float]:
        return [rate(group) for group in self.optimizer.param_groups]

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", stacklevel=3
            )

    def step(self, epoch: Optional[int] = None) -> None:
        """Sets the next epoch's rates, or those of ``epoch``."""
        first = self._step_count == 1 and not self._is_initial
        own = self.optimizer.__dict__.get("step")
        if first and own is not None and not getattr(own, "_notes_calls", False):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`.",
                UserWarning,
                stacklevel=2,
            )
        elif first and not getattr(self.optimizer, "_opt_called", True):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In this order the first value of the "
                "learning rate schedule is skipped; call them in the opposite order: `optimizer.step()` before "
                "`lr_scheduler.step()`.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(
                "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. "
                "Please use `scheduler.step()` to step the scheduler.",
                UserWarning,
                stacklevel=2,
            )
        self._update(epoch)

    def _update(self, epoch: Optional[int]) -> None:
        closed_form = None
        if epoch is None:
            self.last_epoch += 1
        else:
            self.last_epoch = epoch
            closed_form = getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            values = self.get_lr() if closed_form is None else closed_form()
        finally:
            self._get_lr_called_within_step = False
        for group, value in zip(self.optimizer.param_groups, values):
            set_rate(group, value)
        self._last_lr = self._rates()


class FunctionSchedule(LRScheduler):
    """Base of the schedules by functions of the epoch; functions that are objects are saved with their attributes."""

    lr_lambdas: List[Callable[[int], float]]

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        if not isinstance(lr_lambda, (list, tuple)):
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        else:
            if len(lr_lambda) != len(optimizer.param_groups):
                raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> Dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else dict(getattr(f, "__dict__", {})) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        saved = state_dict.pop("lr_lambdas")
        self.__dict__.update(state_dict)
        for f, attributes in zip(self.lr_lambdas, saved):
            if attributes:
                f.__dict__.update(attributes)
