"""Layers in evaluation merged with the batch norm behind them."""

from __future__ import annotations

import copy
from typing import Any, Optional

import athanor
from athanor._C import Tensor
from athanor.nn.parameter import Parameter


def _fused(
    weight: Tensor, bias: Optional[Tensor], mean: Tensor, var: Tensor, eps: float, scale: Any, shift: Any, dim: int
) -> tuple[Parameter, Parameter]:
    with athanor.no_grad():
        scale = athanor.ones_like(mean) if scale is None else scale
        shift = athanor.zeros_like(mean) if shift is None else shift
        bias = athanor.zeros_like(mean) if bias is None else bias
        factor = scale * (var + eps).rsqrt()
        shape = [1] * weight.dim()
        shape[dim] = -1
        fused = weight * factor.reshape(shape).to(weight.dtype)
        return Parameter(fused, weight.requires_grad), Parameter((bias - mean) * factor + shift, bias.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Optional[Tensor],
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Optional[Tensor],
    bn_b: Optional[Tensor],
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that does what conv and then batch norm by running statistics do."""
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Optional[Tensor],
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Optional[Tensor],
    bn_b: Optional[Tensor],
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that does what linear and then batch norm by running statistics do."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fuse(layer: Any, bn: Any, dim: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("Fusion only for batch norm with running statistics")
    out = copy.deepcopy(layer)
    out.weight, out.bias = _fused(
        out.weight, out.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, dim
    )
    return out


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what conv and then bn do in evaluation."""
    return _fuse(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what linear and then bn do in evaluation."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"{linear.out_features} and {bn.num_features}"
        )
    return _fuse(linear, bn, 0)
