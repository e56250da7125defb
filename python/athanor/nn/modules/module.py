"""Module: parameters, buffers and submodules under the names of attributes, and a forward function."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Iterator, Mapping, Optional

from athanor._C import Tensor
from athanor.nn.parameter import Buffer, Parameter

from ._hooks import (
    BackwardHook,
    RemovableHandle,
    every_module,
    hook_last_operation,
    one_kind,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ._placement import PlacementMixin
from ._state import StateDictMixin, _IncompatibleKeys

__all__ = [
    "Module",
    "register_module_forward_pre_hook",
    "register_module_forward_hook",
    "register_module_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_set = object.__setattr__


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ in ("builtins", "__builtin__") else kind.__module__ + "."
    return module + kind.__qualname__


def _indented(text: str, spaces: int = 2) -> str:
    return text.replace("\n", "\n" + " " * spaces)


class Module(PlacementMixin, StateDictMixin):
    """A part of a network: what it is made of are its attributes, what it computes its forward().

    Parameters, Buffers and Modules that become attributes are registered under the attribute's name. A subclass calls
    super().__init__() before it sets any of them.
    """

    dump_patches: bool = False
    training: bool
    call_super_init: bool = False
    #: Whether a hook was ever registered, so that calls without hooks need one look.
    _hooked: bool = False
    #: Which kind of backward hook there is; both at once cannot be.
    _is_full_backward_hook: Optional[bool] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                first = next(iter(kwargs))
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{first}'")
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers_set"] = set()
        d["_modules"] = {}
        for name in _HOOK_DICTS:
            d[name] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. To be defined by every subclass; called through module(...), which runs hooks."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if not (self._hooked or every_module.used):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)
        except Exception as error:
            _note_path(error, self)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        always = [*every_module.forward_always_called, *self._forward_hooks_always_called]
        if not always:
            return self._run_call(args, kwargs, [])
        done: list[int] = []
        try:
            return self._run_call(args, kwargs, done)
        except Exception:
            # Hooks that must run did not; they see no result, and their own errors must not hide the first one.
            for hooks, with_kwargs, chosen in (
                (every_module.forward, every_module.forward_with_kwargs, every_module.forward_always_called),
                (self._forward_hooks, self._forward_hooks_with_kwargs, self._forward_hooks_always_called),
            ):
                for key, hook in hooks.items():
                    if key in chosen and key not in done:
                        try:
                            hook(self, args, kwargs, None) if key in with_kwargs else hook(self, args, None)
                        except Exception as error:
                            import warnings

                            warnings.warn(
                                "module forward hook with ``always_call=True`` raised an exception that was silenced "
                                f"as another error was raised in forward: {error}"
                            )
            raise

    def _run_call(self, args: tuple, kwargs: dict, done: list[int]) -> Any:
        for hook in every_module.forward_pre.values():
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(
                            "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                            f"{changed}."
                        )
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        backward = None
        full: list = []
        last: list = []
        if self._backward_hooks or every_module.backward:
            (last if every_module.backward_is_full is False else full).extend(every_module.backward.values())
            (last if self._is_full_backward_hook is False else full).extend(self._backward_hooks.values())
        if full or self._backward_pre_hooks or every_module.backward_pre:
            backward = BackwardHook(
                self,
                full,
                [*every_module.backward_pre.values(), *self._backward_pre_hooks.values()],
            )
            args = backward.setup_input_hook(args)
        result = self.forward(*args, **kwargs)
        for key, hook in [*every_module.forward.items(), *self._forward_hooks.items()]:
            done.append(key)
            if key in self._forward_hooks_with_kwargs or key in every_module.forward_with_kwargs:
                changed = hook(self, args, kwargs, result)
            else:
                changed = hook(self, args, result)
            if changed is not None:
                result = changed
        if backward is not None:
            if not (isinstance(result, Tensor) or _is_tuple_of_tensors(result)):
                import warnings

                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                    f"received {type(result)}"
                )
            else:
                result = backward.setup_output_hook(result)
        if last:
            hook_last_operation(self, last, args, result)
        return result

    # Registration.

    def _check_new_name(self, kind: str, name: Any, own: Mapping) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in own:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Adds a tensor (or None) that is moved with the module and, if persistent, saved with it, but not trained."""
        self._check_new_name("buffer", name, self.__dict__.get("_buffers", {}))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        for hook in every_module.register_buffer.values():
            changed = hook(self, name, tensor)
            if changed is not None:
                tensor = changed
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Optional[Parameter]) -> None:
        """Adds a parameter, or a name without one (None)."""
        self._check_new_name("parameter", name, self.__dict__.get("_parameters", {}))
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}': a parameter is not computed from others; "
                    f"compute '{name}' in forward() instead"
                )
            for hook in every_module.register_parameter.values():
                changed = hook(self, name, param)
                if changed is not None:
                    param = changed
        self._parameters[name] = param

    def add_module(self, name: str, module: Optional[Module]) -> None:
        """Adds a submodule (or None) under a name by which it is an attribute too."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        self._check_new_name("module", name, self.__dict__.get("_modules", {}))
        for hook in every_module.register_module.values():
            changed = hook(self, name, module)
            if changed is not None:
                module = changed
        self._modules[name] = module

    def register_module(self, name: str, module: Optional[Module]) -> None:
        """The same as add_module()."""
        self.add_module(name, module)

    # Attributes.

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        if "_parameters" in d:
            if name in d["_parameters"]:
                return d["_parameters"][name]
            if name in d["_buffers"]:
                return d["_buffers"][name]
            if name in d["_modules"]:
                return d["_modules"][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _forget(self, name: str, *where: Any) -> None:
        for names in where:
            if name in names:
                if isinstance(names, set):
                    names.discard(name)
                else:
                    del names[name]

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        if isinstance(value, Tensor):
            if isinstance(value, Parameter):
                if "_parameters" not in d:
                    raise AttributeError("cannot assign parameters before Module.__init__() call")
                self._forget(name, d, d["_buffers"], d["_modules"], d["_non_persistent_buffers_set"])
                self.register_parameter(name, value)
                return
            if isinstance(value, Buffer):
                if "_buffers" not in d:
                    raise AttributeError("cannot assign buffer before Module.__init__() call")
                self._forget(name, d, d["_parameters"], d["_modules"])
                self.register_buffer(name, value, value.persistent)
                return
        elif isinstance(value, Module):
            if "_modules" not in d:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, d, d["_parameters"], d["_buffers"], d["_non_persistent_buffers_set"])
            for hook in every_module.register_module.values():
                changed = hook(self, name, value)
                if changed is not None:
                    value = changed
            d["_modules"][name] = value
            return
        if "_parameters" in d:
            if name in d["_parameters"]:
                if value is not None:
                    raise TypeError(
                        f"cannot assign '{_type_name(value)}' as parameter '{name}' "
                        "(torch.nn.Parameter or None expected)"
                    )
                self.register_parameter(name, value)
                return
            if name in d["_modules"]:
                if value is not None:
                    raise TypeError(
                        f"cannot assign '{_type_name(value)}' as child module '{name}' "
                        "(torch.nn.Module or None expected)"
                    )
                d["_modules"][name] = value
                return
            if name in d["_buffers"]:
                if value is not None and not isinstance(value, Tensor):
                    raise TypeError(
                        f"cannot assign '{_type_name(value)}' as buffer '{name}' "
                        "(torch.nn.Buffer, torch.Tensor or None expected)"
                    )
                for hook in every_module.register_buffer.values():
                    changed = hook(self, name, value)
                    if changed is not None:
                        value = changed
                d["_buffers"][name] = value
                return
        _set(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers}
        # Names like "0", by which containers hold their modules, cannot be written as attributes.
        return sorted(name for name in names if not name[:1].isdigit())

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        for name in _HOOK_DICTS:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    # Parts by path and in order.

    def get_submodule(self, target: str) -> Module:
        """The module at a path like "net_b.conv"; "" is the module itself. AttributeError if there is none."""
        if target == "":
            return self
        module: Any = self
        for name in target.split("."):
            if not hasattr(module, name):
                raise AttributeError(module._get_name() + f" has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` at a path. With strict, a module must be there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f'"module" is not an nn.Module, found {type(module)}')
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(parent._get_name() + f" has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path like "net_b.conv.weight". AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(module._get_name() + f" has no attribute `{name}`")
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Any:
        """The buffer at a path like "net_b.norm.running_mean". AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(module._get_name() + f" has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return module._buffers[name]

    def _named_members(
        self, members_of: Callable, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in members_of(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once; those of submodules too unless recurse is False."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) for all parameters."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """All buffers, each once; those of submodules too unless recurse is False."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """(path, buffer) for all buffers."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) for the direct submodules, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """The module itself and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: Optional[set] = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(path, module) for the module itself and all below it. memo: modules not to be given again."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    # Hooks.

    def _add_hook(
        self, hooks: OrderedDict, hook: Callable, prepend: bool = False, *flags: OrderedDict
    ) -> RemovableHandle:
        handle = RemovableHandle(hooks, extra_dict=list(flags))
        hooks[handle.id] = hook
        for flag in flags:
            flag[handle.id] = True
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        _set(self, "_hooked", True)
        return handle

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args), with_kwargs hook(module, args, kwargs), before every forward; what it returns
        replaces the arguments: one value or a tuple, with_kwargs a pair (args, kwargs).
        """
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return self._add_hook(self._forward_pre_hooks, hook, prepend, *flags)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args, output), with_kwargs hook(module, args, kwargs, output), after every forward; what
        it returns replaces the output. always_call: also if forward raises.
        """
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            flags.append(self._forward_hooks_always_called)
        return self._add_hook(self._forward_hooks, hook, prepend, *flags)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_output) before the module's backward; what it returns replaces grad_output."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) once the gradients of the module's positional arguments are
        known; what it returns replaces grad_input. Both are tuples, None where there is no tensor.
        """
        self._is_full_backward_hook = one_kind(self._is_full_backward_hook, True, "on a single Module")
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The old form of register_full_backward_hook(): grad_input are the gradients that the last operation of
        forward passes on, whatever it was given, and grad_output those of the first tensor of the result.
        """
        self._is_full_backward_hook = one_kind(self._is_full_backward_hook, False, "on a single Module")
        return self._add_hook(self._backward_hooks, hook)

    # Printing.

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What repr() shows of the module beside its submodules. To be overridden."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        if not child_lines and len(extra_lines) < 2:
            return f"{self._get_name()}({extra})"
        return self._get_name() + "(\n  " + "\n  ".join(extra_lines + child_lines) + "\n)"


_HOOK_DICTS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _note_path(error: Any, module: Module) -> None:
    """Adds to an error that leaves `module` where in the network it came from: "in Net.layer1.0.conv2"."""
    if not hasattr(error, "add_note"):
        return  # before Python 3.11
    inner, path, note = error.__dict__.get("_athanor_place", (None, "", None))
    if inner is not None:
        name = next((name for name, m in module.named_modules() if id(m) == inner), None)
        if not name:
            return  # called from elsewhere: its place in this module says nothing
        path = f"{name}.{path}" if path else name
        error.__notes__.remove(note)
    note = f"in {module._get_name()}" + (f".{path}" if path else "")
    error.add_note(note)
    error._athanor_place = id(module), path, note  # numbers and words: errors are pickled by worker processes


def _is_tuple_of_tensors(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, Tensor) for v in value)
