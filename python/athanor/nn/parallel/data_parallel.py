"""Data parallelism over the devices of one process."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import athanor

from ..modules.module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import as_device, gather, scatter_kwargs


def _all_devices() -> List[Any]:
    from athanor import cuda

    return list(range(cuda.device_count())) if cuda.is_available() else []


def _check_place(module: Any, device: Any) -> None:
    for tensor in list(module.parameters()) + list(module.buffers()):
        if tensor.device != device:
            raise RuntimeError(f"module must have its parameters and buffers on device {device} (device_ids[0]) but found "
                               f"one of them on device: {tensor.device}")


class DataParallel(Module):
    """Cuts inputs along `dim`, runs a copy of `module` on every device, joins the results on output_device.

    device_ids: all devices unless given; the module's parameters must lie on the first. Without a device the module
    itself runs. Raises RuntimeError if parameters lie elsewhere.
    """

    def __init__(self, module: Any, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None,
                 dim: int = 0) -> None:
        super().__init__()
        ids = list(device_ids) if device_ids is not None else _all_devices()
        self.module = module
        self.device_ids: List[Any] = []
        self.dim = dim
        if not ids:
            return
        devices = [as_device(d) for d in ids]
        if len(set(devices)) != len(devices):
            raise ValueError(f"DataParallel: a device is given twice in device_ids {ids}")
        self.device_ids = [d.index if d.index is not None else 0 for d in devices]
        self.output_device = as_device(output_device) if output_device is not None else devices[0]
        self.src_device_obj = devices[0]
        self._devices = devices
        if len(devices) == 1:
            self.module.to(devices[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result for the whole input."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_place(self.module, self.src_device_obj)
        cut, cut_kwargs = self.scatter(inputs, kwargs, self._devices)
        if not cut:
            cut, cut_kwargs = ((),), ({},)
        if len(self._devices) == 1:
            return self.module(*cut[0], **cut_kwargs[0])
        used = self._devices[: len(cut)]
        return self.gather(self.parallel_apply(self.replicate(self.module, used), cut, cut_kwargs), self.output_device)

    def replicate(self, module: Any, device_ids: Sequence[Any]) -> List[Any]:
        """Copies on the devices."""
        return replicate(module, device_ids, not athanor.is_grad_enabled())

    def scatter(self, inputs: Tuple, kwargs: Dict, device_ids: Sequence[Any]) -> Any:
        """The arguments in parts."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> List[Any]:
        """The copies' results."""
        return parallel_apply(replicas, inputs, kwargs, self._devices[: len(replicas)])

    def gather(self, outputs: Sequence[Any], output_device: Any) -> Any:
        """The results joined."""
        return gather(outputs, output_device, dim=self.dim)


def data_parallel(module: Any, inputs: Any, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None,
                  dim: int = 0, module_kwargs: Optional[Dict] = None) -> Any:
    """One call of module(*inputs, **module_kwargs), in parts on several devices."""
    args = inputs if isinstance(inputs, tuple) else (() if inputs is None else (inputs,))
    return DataParallel(module, device_ids, output_device, dim)(*args, **(module_kwargs or {}))
