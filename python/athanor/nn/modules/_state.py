"""What a module holds, written out and read in: state_dict and load_state_dict."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict, namedtuple
from typing import Any, Callable, Mapping

import athanor
from athanor._C import Tensor
from athanor.nn.parameter import Parameter, is_lazy

from ._hooks import RemovableHandle

_EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict could not match."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _WithModule:
    """A hook that is told its module, which it does not keep alive; it follows the module into copies and pickles."""

    def __init__(self, hook: Callable, module: Any) -> None:
        self.hook = hook
        self.module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.hook(self.module(), *args, **kwargs)

    def __getstate__(self) -> tuple:
        return self.hook, self.module()

    def __setstate__(self, state: tuple) -> None:
        self.hook = state[0]
        self.module = weakref.ref(state[1])


class StateDictMixin:
    """The part of Module that writes and reads states."""

    _version: int = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]
    _state_dict_hooks: OrderedDict[int, Callable]
    _state_dict_pre_hooks: OrderedDict[int, Callable]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable]
    _load_state_dict_post_hooks: OrderedDict[int, Callable]

    def get_extra_state(self) -> Any:
        """What state_dict shall hold beside parameters and buffers. To be overridden together with set_extra_state."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called: override it to use it"
        )

    def set_extra_state(self, state: Any) -> None:
        """Takes what get_extra_state() gave."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called: override it to use it"
        )

    def _has_own(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(StateDictMixin, name)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        for name, value in self._parameters.items():
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars else value.detach()
        if self._has_own("get_extra_state"):
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """An OrderedDict of all parameters and persistent buffers by their paths ("layer1.0.weight"), those of
        submodules included. The tensors share memory with the module's; they are detached unless keep_vars.
        """
        for name, value in zip(("destination", "prefix", "keep_vars"), args):
            import warnings

            warnings.warn(
                "Positional args are being deprecated, use kwargs instead: state_dict(destination=, prefix=, "
                "keep_vars=)",
                FutureWarning,
                stacklevel=2,
            )
            if name == "destination":
                destination = value
            elif name == "prefix":
                prefix = value
            else:
                keep_vars = value
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if not getattr(hook, "_from_public_api", False):
                if result is not None:
                    destination = result
            elif result is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata) at the end of state_dict(); it may change that."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._register_state_dict_hook(hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = hook
        return handle

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls hook(module, prefix, keep_vars) at the beginning of state_dict()."""
        handle = RemovableHandle(self._state_dict_pre_hooks)
        self._state_dict_pre_hooks[handle.id] = hook
        return handle

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        handle = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[handle.id] = _WithModule(hook, self) if with_module else hook
        return handle

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        before the module's own part of a load_state_dict().
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls hook(module, incompatible_keys) after load_state_dict(); it may change the lists it is given."""
        handle = RemovableHandle(self._load_state_dict_post_hooks)
        self._load_state_dict_post_hooks[handle.id] = hook
        return handle

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list,
        unexpected_keys: list,
        error_msgs: list,
    ) -> None:
        """Reads the module's own parameters and buffers, not those of submodules. To be overridden by modules whose
        older versions saved something else."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = {
            name: value
            for name, value in itertools.chain(self._parameters.items(), self._buffers.items())
            if value is not None and name not in self._non_persistent_buffers_set
        }
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, value in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, value, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        self._load_extra_state(state_dict, prefix, strict, missing_keys, unexpected_keys)
        if strict:
            self._find_unexpected(state_dict, prefix, own, unexpected_keys)

    def _load_one(self, name: str, value: Any, key: str, given: Any, assign: bool, error_msgs: list) -> None:
        if not isinstance(given, Tensor):
            error_msgs.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(given)}"
            )
            return
        if is_lazy(value) and is_lazy(given):
            return
        # Very old checkpoints keep 0-d values as vectors of one element.
        if value.dim() == 0 and tuple(given.shape) == (1,):
            given = given[0]
        if tuple(given.shape) != tuple(value.shape):
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape in "
                f"current model is {value.shape}."
            )
            return
        try:
            with athanor.no_grad():
                if not assign:
                    value.copy_(given)
                    return
                if isinstance(value, Parameter):
                    if not isinstance(given, Parameter):
                        given = Parameter(given, requires_grad=value.requires_grad)
                    else:
                        given.requires_grad_(value.requires_grad)
                setattr(self, name, given)
        except Exception as error:
            error_msgs.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are {value.size()} and '
                f"whose dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}."
            )

    def _load_extra_state(
        self, state_dict: Mapping[str, Any], prefix: str, strict: bool, missing_keys: list, unexpected_keys: list
    ) -> None:
        key = prefix + _EXTRA_STATE
        if self._has_own("set_extra_state"):
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)

    def _find_unexpected(self, state_dict: Mapping[str, Any], prefix: str, own: dict, unexpected_keys: list) -> None:
        for key in state_dict:
            if key.startswith(prefix) and key != prefix + _EXTRA_STATE:
                rest = key[len(prefix) :].split(".", 1)
                if (len(rest) > 1 and rest[0] not in self._modules) or (len(rest) == 1 and rest[0] not in own):
                    unexpected_keys.append(key)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copies parameters and buffers out of `state_dict`, by their paths.

        strict: every key must match; else what does not match is only told. assign: the tensors of state_dict take the
        place of the module's instead of being copied into them. Gives (missing_keys, unexpected_keys). Throws
        TypeError if state_dict is no mapping, RuntimeError that lists every key and shape that does not fit.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing_keys: list[str] = []
        unexpected_keys: list[str] = []
        error_msgs: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied: Any = OrderedDict(state_dict)
        if metadata is not None:
            copied._metadata = metadata

        def load(module: Any, local_state_dict: Mapping[str, Any], prefix: str) -> None:
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = True
            module._load_from_state_dict(
                local_state_dict, prefix, local_metadata, True, missing_keys, unexpected_keys, error_msgs
            )
            for name, child in module._modules.items():
                if child is not None:
                    child_prefix = prefix + name + "."
                    load(child, {k: v for k, v in local_state_dict.items() if k.startswith(child_prefix)}, child_prefix)
            incompatible = _IncompatibleKeys(missing_keys, unexpected_keys)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise RuntimeError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                        "values, they change incompatible_keys in place"
                    )

        load(self, copied, "")
        del load  # which refers to itself, and to the tensors: the garbage collector would come late
        if strict:
            listed = ", ".join(f'"{k}"' for k in unexpected_keys)
            if listed:
                error_msgs.insert(0, f"Unexpected key(s) in state_dict: {listed}. ")
            listed = ", ".join(f'"{k}"' for k in missing_keys)
            if listed:
                error_msgs.insert(0, f"Missing key(s) in state_dict: {listed}. ")
        if error_msgs:
            lines = "\n\t".join(error_msgs)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{lines}")
        return _IncompatibleKeys(missing_keys, unexpected_keys)
