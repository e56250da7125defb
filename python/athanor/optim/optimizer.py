"""The base of all optimizers: parameter groups, state, hooks, and state_dicts in PyTorch's form."""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
from collections import OrderedDict, defaultdict
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

import athanor
from athanor import Tensor

ParamsT = Iterable[Union[Tensor, Dict[str, Any], tuple]]
StateDict = Dict[str, Any]

_SET = (
    "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change "
    "between runs. Please use a list instead."
)
_global_pre_hooks: "OrderedDict[int, Callable]" = OrderedDict()
_global_post_hooks: "OrderedDict[int, Callable]" = OrderedDict()


class _Required:
    """Marks an option without a default: every parameter group has to give it."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class RemovableHandle:
    """What registering a hook returns: ``remove()`` takes the hook out again; so does leaving a ``with``."""

    _ids = itertools.count()

    def __init__(self, hooks: dict) -> None:
        self._hooks = hooks
        self.id = next(RemovableHandle._ids)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def _register(hooks: "OrderedDict[int, Callable]", hook: Callable, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Has ``hook(optimizer, args, kwargs)`` called before every step of every optimizer; it may return new ones."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Has ``hook(optimizer, args, kwargs)`` called after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _step_with_hooks(step: Callable) -> Callable:
    """``step`` of a class, made to call hooks and to note for schedules that it was called."""

    @functools.wraps(step)
    def wrapper(self: "Optimizer", *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True
        if not (_global_pre_hooks or _global_post_hooks or self._step_pre_hooks or self._step_post_hooks):
            return step(self, *args, **kwargs)
        args = (self, *args)  # hooks are shown, and may replace, all that step is called with
        for hook in [*_global_pre_hooks.values(), *self._step_pre_hooks.values()]:
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise RuntimeError(
                    f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                )
            args, kwargs = changed
        result = step(*args, **kwargs)
        for hook in [*self._step_post_hooks.values(), *_global_post_hooks.values()]:
            hook(self, args, kwargs)
        return result

    wrapper._calls_hooks = True  # type: ignore[attr-defined]
    return wrapper


class Optimizer:
    """Base class. A subclass passes its options to ``__init__`` and defines ``step(closure=None)``.

    Args:
        params: tensors, ``(name, tensor)`` pairs, or dicts with a key "params" and options of their own.
        defaults: options of groups that do not give them.

    Raises:
        TypeError: ``params`` is a tensor or holds what is none.
        ValueError: no parameters, one that is no leaf, or one that is in two groups.
    """

    _step_pre_hooks: "OrderedDict[int, Callable]"
    _step_post_hooks: "OrderedDict[int, Callable]"
    _opt_called: bool  # noted by step() for schedules

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if callable(step) and not getattr(step, "_calls_hooks", False):
            cls.step = _step_with_hooks(step)  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: Dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + params.type()
            )
        if isinstance(params, (set, frozenset)):
            warnings.warn(_SET, FutureWarning, stacklevel=3)
        self.state: "defaultdict[Tensor, Any]" = defaultdict(dict)
        self.param_groups: List[Dict[str, Any]] = []
        groups: List[Any] = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        self._step_pre_hooks = OrderedDict()
        self._step_post_hooks = OrderedDict()
        self._state_dict_pre_hooks: "OrderedDict[int, Callable]" = OrderedDict()
        self._state_dict_post_hooks: "OrderedDict[int, Callable]" = OrderedDict()
        self._load_state_dict_pre_hooks: "OrderedDict[int, Callable]" = OrderedDict()
        self._load_state_dict_post_hooks: "OrderedDict[int, Callable]" = OrderedDict()

    def __getstate__(self) -> Dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._make_hooks()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __repr__(self) -> str:
        text = self.__class__.__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"

    # Hooks.

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Has ``hook(optimizer, args, kwargs)`` called before each step; it may return new args and kwargs."""
        return _register(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Has ``hook(optimizer, args, kwargs)`` called after each step."""
        return _register(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Has ``hook(optimizer)`` called before :meth:`state_dict`."""
        return _register(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Has ``hook(optimizer, state_dict)`` called after :meth:`state_dict`; it may return another one."""
        return _register(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Has ``hook(optimizer, state_dict)`` called before loading a shallow copy; it may return another one."""
        return _register(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Has ``hook(optimizer)`` called after :meth:`load_state_dict`."""
        return _register(self._load_state_dict_post_hooks, hook, prepend)

    # State.

    def state_dict(self) -> StateDict:
        """The state by number of the parameter, and every group with its parameters' numbers in place of them."""
        for hook in self._state_dict_pre_hooks.values():
            hook(self)
        numbers: Dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        result: StateDict = {"state": state, "param_groups": groups}
        for hook in self._state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Takes over what :meth:`state_dict` returned; floating states get their parameter's dtype and device.

        Raises:
            ValueError: the number or the sizes of the groups differ; nothing is changed then.
        """
        state_dict = state_dict.copy()
        for hook in self._load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups = self.param_groups
        loaded = copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(loaded):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, loaded)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        by_number = {
            number: (p, group)
            for group, other in zip(groups, loaded)
            for number, p in zip(other["params"], group["params"])
        }
        state: "defaultdict[Tensor, Any]" = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                param, group = by_number[key]
                state[param] = _cast_state(param, value, None)
            else:
                state[key] = value
        for group, other in zip(groups, loaded):
            other["params"] = group["params"]
            if "param_names" in group and "param_names" not in other:
                other["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": loaded})
        for hook in self._load_state_dict_post_hooks.values():
            hook(self)

    # Parameters.

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or with ``set_to_none=False`` fills those there are with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                    continue
                grad = p.grad
                if grad is None:
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, as for layers that are unfrozen while training goes on. Raises as the constructor."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, (set, frozenset)):
            raise TypeError(_SET)
        params, names = _split_names(list(params))
        param_group["params"] = params
        if names is not None:
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        own = {id(p) for p in params}
        if len(own) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in group) != ("param_names" in param_group):
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group with names to "
                    "the optimizer"
                    if "param_names" in param_group
                    else "all optimizer param groups should be with/without names. cannot add param group without "
                    "names to the optimizer"
                )
            if not own.isdisjoint(map(id, group["params"])):
                raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One update of every parameter that has a gradient. ``closure`` computes the loss anew and returns it."""
        raise NotImplementedError(f"{type(self).__name__} does not define step(closure=None)")


def _split_names(params: List[Any]) -> tuple:
    """Parameters, and their names if they came in pairs."""
    named = [isinstance(p, tuple) for p in params]
    if not any(named):
        return params, None
    if not all(named):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    return [p for _, p in params], [name for name, _ in params]


def _cast_state(param: Tensor, value: Any, key: Any) -> Any:
    if isinstance(value, Tensor):
        if key == "step":  # a number that stays on the host, whatever the parameter is
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)
    if isinstance(value, dict):
        return {k: _cast_state(param, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast_state(param, v, key) for v in value)
    return value


class FusedOptimizer(Optimizer):
    """Optimizers whose step is one call of a kernel for all parameters of a group.

    A subclass says in ``_update_group`` what is done with the parameters of a group that have a gradient.
    """

    def __init__(self, params: ParamsT, defaults: Dict[str, Any]) -> None:
        for name in ("differentiable", "capturable"):
            if defaults.get(name):
                raise ValueError(
                    f"{type(self).__name__}: {name}=True is not supported: the update is one fused kernel on the host; "
                    "leave it out"
                )
        if defaults.get("foreach") and defaults.get("fused"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        super().__init__(params, defaults)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        # Older PyTorch kept counts as numbers.
        for values in self.state.values():
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    values[name] = athanor.tensor(float(value), dtype=athanor.float32)

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
                params, grads = [], []
                for p in group["params"]:
                    grad = p.grad
                    if grad is not None:
                        params.append(p)
                        grads.append(grad)
                if params:
                    self._update_group(group, params, grads)
        return loss

    def _update_group(self, group: Dict[str, Any], params: List[Tensor], grads: List[Tensor]) -> None:
        raise NotImplementedError

    def _states(self, params: List[Tensor], names: tuple, extra: Optional[Callable[[Tensor, dict], None]] = None) -> list:
        """The lists of the states called ``names``, one for each name; states that are missing are made.

        "step" counts in a float32 scalar on the host; others begin as zeros unless ``extra(param, state)`` makes them.
        """
        lists: List[list] = [[] for _ in names]
        for p in params:
            state = self.state[p]
            if len(state) < len(names):
                if extra is not None:
                    extra(p, state)
                for name in names:
                    if name not in state:
                        state[name] = athanor.zeros((), dtype=athanor.float32) if name == "step" else athanor.zeros_like(p)
            for name, values in zip(names, lists):
                values.append(state[name])
        return lists


def check_options(lr: Any = 0.0, eps: float = 0.0, weight_decay: float = 0.0, betas: tuple = ()) -> None:
    """Raises ValueError, in PyTorch's words, for what most algorithms cannot use."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= lr:
        raise ValueError(f"Invalid learning rate: {lr}")
    if not 0.0 <= eps:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
    if not 0.0 <= weight_decay:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")
