"""Cutting arguments in parts for several devices, and joining results."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import athanor
from athanor import Tensor


def as_device(device: Any) -> athanor.device:
    """A device from a device, a string or the index of a CUDA device."""
    return athanor.device(device)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> List[Any]:
    """Cuts tensors along `dim` as chunk() does, a part for each device, in whatever tuples, lists and dicts they stand;
    everything else goes to all devices. Differentiable. Fewer parts than devices if there are not enough rows."""
    devices = [as_device(d) for d in target_gpus]

    def cut(obj: Any) -> List[Any]:
        if isinstance(obj, Tensor):
            if obj.dim() == 0:
                raise RuntimeError("scatter: a 0-d tensor cannot be cut in parts")
            return [part.to(device) for part, device in zip(obj.chunk(len(devices), dim), devices)]
        if isinstance(obj, tuple) and hasattr(obj, "_fields"):
            return [type(obj)(*args) for args in zip(*map(cut, obj))]
        if isinstance(obj, tuple) and obj:
            return list(zip(*map(cut, obj)))
        if isinstance(obj, list) and obj:
            return [list(part) for part in zip(*map(cut, obj))]
        if isinstance(obj, dict) and obj:
            return [type(obj)(part) for part in zip(*map(cut, obj.items()))]
        return [obj for _ in devices]

    return cut(inputs)


def scatter_kwargs(inputs: Tuple[Any, ...], kwargs: Dict[str, Any], target_gpus: Sequence[Any],
                   dim: int = 0) -> Tuple[Tuple[Any, ...], Tuple[Dict[str, Any], ...]]:
    """scatter of positional and keyword arguments, in as many parts each."""
    cut = scatter(inputs, target_gpus, dim) if inputs else []
    cut_kwargs = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(cut), len(cut_kwargs))
    cut = list(cut) + [() for _ in range(count - len(cut))]
    cut_kwargs = list(cut_kwargs) + [{} for _ in range(count - len(cut_kwargs))]
    return tuple(cut), tuple(cut_kwargs)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Joins the parts of tensors along `dim` on a device, in whatever tuples, lists and dicts they stand. Numbers of
    dim 0 become a vector. Differentiable."""
    device = as_device(target_device)

    def join(parts: Sequence[Any]) -> Any:
        first = parts[0]
        if isinstance(first, Tensor):
            moved = [p.to(device) for p in parts]
            return athanor.stack(moved) if first.dim() == 0 else athanor.cat(moved, dim)
        if first is None:
            return None
        if isinstance(first, dict):
            if any(len(p) != len(first) for p in parts):
                raise ValueError("All dicts must have the same number of keys")
            return type(first)((k, join([p[k] for p in parts])) for k in first)
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)._make(map(join, zip(*parts)))
        return type(first)(map(join, zip(*parts)))

    return join(outputs)
