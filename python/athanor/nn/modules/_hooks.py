"""Hooks of modules: handles, hooks that see every module, and the gradients of a module's inputs and outputs."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import OrderedDict
from typing import Any, Callable, Optional

from athanor import _C
from athanor._C import Tensor

__all__ = ["RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """Stands for a registered hook: remove() takes it away. As a context manager it does so at the end of the block."""

    def __init__(self, hooks: dict, *, extra_dict: Any = None) -> None:
        # Hooks of an unpickled module have numbers of another process.
        self.id = next(i for i in _ids if i not in hooks)
        self._where = [weakref.ref(hooks)]
        for more in extra_dict if isinstance(extra_dict, list) else [extra_dict]:
            if more is not None:
                self._where.append(weakref.ref(more))

    @property
    def hooks_dict_ref(self) -> Any:
        """A weak reference to the dict that holds the hook."""
        return self._where[0]

    def remove(self) -> None:
        """Takes the hook away; nothing happens if it is gone already."""
        for ref in self._where:
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple:
        return tuple(ref() for ref in self._where), self.id

    def __setstate__(self, state: tuple) -> None:
        hooks, self.id = state
        self._where = [weakref.ref(h if h is not None else OrderedDict()) for h in hooks]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


class GlobalHooks:
    """Hooks that are called for every module of the program."""

    def __init__(self) -> None:
        self.forward_pre: OrderedDict = OrderedDict()
        self.forward: OrderedDict = OrderedDict()
        self.forward_with_kwargs: OrderedDict = OrderedDict()
        self.forward_always_called: OrderedDict = OrderedDict()
        self.backward_pre: OrderedDict = OrderedDict()
        self.backward: OrderedDict = OrderedDict()
        self.backward_is_full: Optional[bool] = None
        self.register_parameter: OrderedDict = OrderedDict()
        self.register_buffer: OrderedDict = OrderedDict()
        self.register_module: OrderedDict = OrderedDict()
        self.used = False

    def add(self, hooks: OrderedDict, hook: Callable, *flags: OrderedDict) -> RemovableHandle:
        """Registers `hook`, marked in every dict of `flags`."""
        handle = RemovableHandle(hooks, extra_dict=list(flags))
        hooks[handle.id] = hook
        for flag in flags:
            flag[handle.id] = True
        self.used = True
        return handle


every_module = GlobalHooks()


def register_module_forward_pre_hook(hook: Callable[..., None]) -> RemovableHandle:
    """Calls hook(module, args) before the forward of every module; what it returns replaces the arguments."""
    return every_module.add(every_module.forward_pre, hook)


def register_module_forward_hook(
    hook: Callable[..., None], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls hook(module, args, output) after the forward of every module; what it returns replaces the output."""
    flags = [every_module.forward_with_kwargs] if with_kwargs else []
    if always_call:
        flags.append(every_module.forward_always_called)
    return every_module.add(every_module.forward, hook, *flags)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls hook(module, grad_output) before the backward of every module."""
    return every_module.add(every_module.backward_pre, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls hook(module, grad_input, grad_output) after the backward of every module."""
    every_module.backward_is_full = one_kind(every_module.backward_is_full, True, "globally")
    return every_module.add(every_module.backward, hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The old form of register_module_full_backward_hook(); see Module.register_backward_hook()."""
    every_module.backward_is_full = one_kind(every_module.backward_is_full, False, "globally")
    return every_module.add(every_module.backward, hook)


def one_kind(is_full: Optional[bool], wanted: bool, where: str) -> bool:
    """`wanted`, unless hooks of the other kind are there."""
    if is_full is not None and is_full != wanted:
        raise RuntimeError(
            f"Cannot use both regular backward hooks and full backward hooks {where}. Please use only one of them."
        )
    return wanted


def hook_last_operation(module: Any, hooks: list, args: Any, result: Any) -> None:
    """Has hooks of the old form called with the gradients of the operation that made the module's result."""
    last = result
    while not isinstance(last, Tensor):
        if isinstance(last, dict):
            last = next(v for v in last.values() if isinstance(v, Tensor))
        else:
            last = last[0]
    node = last.grad_fn
    if node is None:
        return
    _warn_of_missing_gradients(args, result, node)
    for hook in hooks:
        node.register_hook(functools.partial(hook, module))


def _warn_of_missing_gradients(args: Any, result: Any, node: Any) -> None:
    """Warns where the last operation's gradients are not those of the module."""
    for values, what, part in ((result, "return", "grad_output"), (args, "take as input", "grad_input")):
        tensors = values if isinstance(values, tuple) else (values,)
        if not all(isinstance(v, Tensor) for v in tensors):
            problem = f"on a Module that does not {what} a single Tensor or a tuple of Tensors"
            break
        nodes = {v.grad_fn for v in tensors if v.grad_fn is not None}
        if part == "grad_output" and len(nodes) > 1:
            problem = "when outputs are generated by different autograd Nodes"
            break
        if part == "grad_input":
            before = {n for n, _ in node.next_functions if n is not None}
            if nodes - before or any("AccumulateGrad" not in n.name() for n in before - nodes):
                problem = "when the forward contains multiple autograd Nodes"
                break
    else:
        return
    import warnings

    warnings.warn(
        f"Using a non-full backward hook {problem} is deprecated: the hook misses some {part}. "
        "register_full_backward_hook gives all of them",
        FutureWarning,
        stacklevel=5,
    )


def register_module_parameter_registration_hook(hook: Callable[..., None]) -> RemovableHandle:
    """Calls hook(module, name, parameter) whenever a parameter is registered; what it returns replaces it."""
    return every_module.add(every_module.register_parameter, hook)


def register_module_buffer_registration_hook(hook: Callable[..., None]) -> RemovableHandle:
    """Calls hook(module, name, buffer) whenever a buffer is registered; what it returns replaces it."""
    return every_module.add(every_module.register_buffer, hook)


def register_module_module_registration_hook(hook: Callable[..., None]) -> RemovableHandle:
    """Calls hook(module, name, submodule) whenever a module is registered; what it returns replaces it."""
    return every_module.add(every_module.register_module, hook)


def _gate_class() -> Any:
    """The identity whose backward hands the gradients to a callback first."""
    global _Gate
    if _Gate is None:
        from athanor.autograd import Function

        class BackwardHookFunction(Function):
            @staticmethod
            def forward(ctx: Any, callback: Callable, *tensors: Any) -> tuple:
                ctx.callback = callback
                out = tuple(t.view_as(t) for t in tensors)
                ctx.mark_non_differentiable(*[o for o, t in zip(out, tensors) if not t.requires_grad])
                return out

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> tuple:
                return (None, *ctx.callback(grads))

        _Gate = BackwardHookFunction
    return _Gate


_Gate: Any = None


def _as_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


class BackwardHook:
    """One call of a module with full backward hooks: gates around it see the gradients of its outputs and inputs.

    user_hooks(module, grad_input, grad_output) run when the gradients of the inputs are known, user_pre_hooks(module,
    grad_output) when those of the outputs are.
    """

    def __init__(self, module: Any, user_hooks: list, user_pre_hooks: list) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: Any = None
        self.inputs_gated = False
        self.n_inputs = 0

    @staticmethod
    def _through_gate(callback: Callable, values: tuple) -> tuple[tuple, list[int]]:
        """values with the tensors among them led through a gate, and their places; no places if nothing records."""
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        if not _C.is_grad_enabled() or not any(values[i].requires_grad for i in places):
            return values, []
        gated = _gate_class().apply(callback, *[values[i] for i in places])
        out = list(values)
        for i, t in zip(places, _as_tuple(gated)):
            out[i] = t
        if type(values) is not tuple and hasattr(values, "_fields"):
            return type(values)(*out), places
        return tuple(out), places

    @staticmethod
    def _spread(grads: tuple, places: list[int], size: int) -> tuple:
        out = [None] * size
        for i, g in zip(places, grads):
            out[i] = g
        return tuple(out)

    def setup_input_hook(self, args: tuple) -> tuple:
        """The arguments to call forward with."""
        self.n_inputs = len(args)
        places: list[int] = []
        out, found = self._through_gate(lambda grads: self._inputs_known(grads, places), args)
        places += found
        self.inputs_gated = bool(found)
        return out

    def setup_output_hook(self, result: Any) -> Any:
        """The module's result, which is to be given to the caller."""
        single = not isinstance(result, tuple)
        values = (result,) if single else result
        places: list[int] = []
        out, found = self._through_gate(lambda grads: self._outputs_known(grads, places, len(values)), values)
        places += found
        return out[0] if single else out

    def _outputs_known(self, grads: tuple, places: list[int], size: int) -> tuple:
        grad_outputs = self._spread(grads, places, size)
        for hook in self.user_pre_hooks:
            changed = hook(self.module, grad_outputs)
            if changed is None:
                continue
            changed = _as_tuple(changed)
            if len(changed) != size:
                raise RuntimeError(
                    f"Backward pre hook returned an invalid number of grad_output, got {len(changed)}, "
                    f"but expected {size}"
                )
            grad_outputs = changed
        self.grad_outputs = grad_outputs
        if not self.inputs_gated:
            self._run_hooks((None,) * self.n_inputs, fixed=True)
        return tuple(grad_outputs[i] for i in places)

    def _inputs_known(self, grads: tuple, places: list[int]) -> tuple:
        if self.grad_outputs is None and self.user_hooks:
            # It came on a way that does not lead through the output: that of a gradient's gradient.
            return grads
        grad_inputs = self._run_hooks(self._spread(grads, places, self.n_inputs), fixed=False)
        return tuple(grad_inputs[i] for i in places)

    def _run_hooks(self, grad_inputs: tuple, fixed: bool) -> tuple:
        for hook in self.user_hooks:
            changed = hook(self.module, grad_inputs, self.grad_outputs)
            if changed is None:
                continue
            changed = _as_tuple(changed)
            if fixed and not all(g is None for g in changed):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None, got "
                    f"{changed}"
                )
            if len(changed) != len(grad_inputs):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(changed)}, "
                    f"but expected {len(grad_inputs)}"
                )
            grad_inputs = changed
        self.grad_outputs = None
        return grad_inputs
