"""Batch normalization by the mean and variance of the batches of all ranks together."""
from __future__ import annotations

from typing import Any, Optional

from athanor import Tensor
from athanor._C import _distributed as _core

from ..modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Input (batch, channels, ...); parameters and buffers as BatchNorm's. Ranks' inputs may differ in all dims but the
    second. In evaluation, and in a group of one, as BatchNorm."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """The input normalized, scaled and shifted."""
        from athanor import distributed as dist

        training = self.training or (self.running_mean is None and self.running_var is None)
        if not (training and self.training and dist.is_initialized()
                and dist.get_world_size(self.process_group) > 1):
            return super().forward(input)
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        return _core.sync_batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, True, momentum,
                                     self.eps, self.process_group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module with every BatchNorm1d, 2d and 3d in it replaced; parameters and buffers are the same objects."""
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            result = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                         process_group)
            if module.affine:
                result.weight, result.bias = module.weight, module.bias
            result.running_mean, result.running_var = module.running_mean, module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
            return result
        for name, child in module.named_children():
            changed = cls.convert_sync_batchnorm(child, process_group)
            if changed is not child:
                module.add_module(name, changed)
        return module
