"""Batch normalization."""

from __future__ import annotations

from typing import Any, Optional

import athanor
from athanor._C import Tensor
from athanor.nn import functional as F
from athanor.nn import init
from athanor.nn.parameter import Parameter

from .module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


class _NormBase(Module):
    """What batch and instance norm share: a scale and a shift, and running statistics, each if asked for."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            value = Parameter(athanor.empty(num_features, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)
        track = track_running_stats
        self.register_buffer("running_mean", athanor.zeros(num_features, device=device, dtype=dtype) if track else None)
        self.register_buffer("running_var", athanor.ones(num_features, device=device, dtype=dtype) if track else None)
        count = athanor.tensor(0, dtype=athanor.int64, device=device) if track else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forgets the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, no statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict, *rest: Any) -> None:
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            # States written before the count existed.
            count = self.num_batches_tracked
            state_dict[key] = count if count is not None else athanor.tensor(0, dtype=athanor.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    """What BatchNorm1d, 2d and 3d share. Dim 1 is the channel; statistics are over all others. momentum: the weight of
    the newest batch in the running statistics, None for their plain mean.
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        training = self.training
        factor = self.momentum
        track = self.track_running_stats
        buffers = self._buffers  # quicker than attributes, which are looked for elsewhere first
        if training and track:
            count = buffers["num_batches_tracked"]
            if count is not None:
                count.add_(1)
                if factor is None:
                    factor = 1.0 / float(count)
        if factor is None:
            factor = 0.0
        mean, var = buffers["running_mean"], buffers["running_var"]
        use_batch = training or (mean is None and var is None)
        if training and not track:
            mean = var = None
        p = self._parameters
        if "weight" in p and "bias" in p:
            return F.batch_norm(input, mean, var, p["weight"], p["bias"], use_batch, factor, self.eps)
        return F.batch_norm(input, mean, var, self.weight, self.bias, use_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (N, C, D, H, W)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")
