"""Copies of a module on other devices whose gradients end on the original's parameters."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .scatter_gather import as_device


def _copy(module: Any, device: Any, moved: Dict[int, Any], detach: bool, known: Dict[int, Any]) -> Any:
    if id(module) in known:
        return known[id(module)]
    copy = module.__new__(type(module))
    known[id(module)] = copy
    copy.__dict__ = module.__dict__.copy()

    def to_device(tensor: Any, cut: bool) -> Any:
        if tensor is None:
            return None
        if id(tensor) not in moved:
            result = (tensor.detach() if cut else tensor).to(device)
            moved[id(tensor)] = result
        return moved[id(tensor)]

    copy.__dict__["_is_replica"] = True
    # What a parameter became is an ordinary tensor with history: an attribute, found where parameters are looked for.
    copy.__dict__["_former_parameters"] = {
        name: to_device(p, detach) for name, p in module._parameters.items() if p is not None
    }
    copy.__dict__["_parameters"] = {name: None for name, p in module._parameters.items() if p is None}
    copy.__dict__.update(copy.__dict__["_former_parameters"])
    copy.__dict__["_buffers"] = {name: to_device(b, True) for name, b in module._buffers.items()}
    copy.__dict__["_modules"] = {
        name: None if m is None else _copy(m, device, moved, detach, known) for name, m in module._modules.items()
    }
    return copy


def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> List[Any]:
    """A copy of the module per device. Parameters travel by recorded copies, so that gradients come back; with `detach`
    they do not. Where a copy's device is the module's own it shares the parameters. Buffers that a copy replaces are
    lost, those of the first, on the module's device, excepted."""
    copies = []
    for d in devices:
        copies.append(_copy(network, as_device(d), {}, detach, {}))
    return copies
