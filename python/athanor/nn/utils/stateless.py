"""Modules called with other parameters than their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from athanor._C import Tensor
from athanor.nn.modules.module import Module

__all__ = ["functional_call"]


def _places(module: Module, tie_weights: bool) -> dict[str, list[tuple[dict, str]]]:
    """Path to where the tensor is kept: the dict of its module and the name there; several if it is shared."""
    found: dict[str, list[tuple[dict, str]]] = {}
    by_tensor: dict[int, list[tuple[dict, str]]] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for own in (part._parameters, part._buffers):
            for name, value in own.items():
                if value is None:
                    continue
                path = f"{prefix}.{name}" if prefix else name
                here = by_tensor.setdefault(id(value), []) if tie_weights else []
                here.append((own, name))
                found[path] = here
    return found


@contextmanager
def _replaced(module: Module, values: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    places = _places(module, tie_weights)
    unexpected = [path for path in values if path not in places]
    missing = [path for path in places if path not in values]
    if strict and (unexpected or missing):
        raise RuntimeError(f"Unexpected key(s): {unexpected}. Missing key(s): {missing}.")
    if unexpected:
        raise AttributeError(f"{type(module).__name__} has no parameter or buffer {unexpected[0]!r}")
    before: list[tuple[dict, str, Any]] = []
    try:
        for path, value in values.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"{value} is not an instance of torch.Tensor")
            for own, name in places[path]:
                before.append((own, name, own[name]))
                own[name] = value
        yield
    finally:
        for own, name, value in reversed(before):
            own[name] = value


def functional_call(
    module: Module,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: Optional[dict] = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with tensors of `parameters_and_buffers`, by their paths, in the place of its own ones;
    gradients flow into them. Several dicts may be given. tie_weights: a tensor that is shared is replaced everywhere.
    strict: every tensor of the module must be given.
    """
    if isinstance(parameters_and_buffers, (list, tuple)):
        merged: dict[str, Tensor] = {}
        for part in parameters_and_buffers:
            again = set(merged) & set(part)
            if again:
                raise ValueError(
                    f"{sorted(again)} appear in multiple dictionaries; behavior of functional call is ambiguous"
                )
            merged.update(part)
    elif isinstance(parameters_and_buffers, dict):
        merged = parameters_and_buffers
    else:
        raise ValueError(
            "Expected parameters_and_buffers to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameters_and_buffers)}"
        )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, merged, tie_weights, strict):
        return module(*args, **(kwargs or {}))
