"""Layers that learn from their first input what they have to be made for: LazyLinear, LazyConv2d and their like."""

from __future__ import annotations

import itertools
from typing import Any, Optional

import athanor
from athanor._C import Tensor
from athanor.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from .batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _NormBase
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .linear import Linear

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin:
    """Makes a Module of which some parameters have no shape before the first input came. A class that inherits from
    this and a Module defines initialize_parameters(*args, **kwargs), which is given what forward will be and calls
    materialize() on those parameters.

    cls_to_become: the class that a module has from then on, where it is not None. Move a lazy module to its device and
    make one call with an example before its parameters go to an optimizer that looks at them.
    """

    cls_to_become: Optional[type] = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        module: Any = self
        self._load_hook = module._register_load_state_dict_pre_hook(_materialize_for, with_module=True)
        self._initialize_hook = module.register_forward_pre_hook(_infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives all parameters without a shape the one that forward(*args, **kwargs) needs. To be defined."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of the module's own has no shape yet."""
        return any(is_lazy(t) for t in itertools.chain(self._parameters.values(), self._buffers.values()))

    def _infer_parameters(self, module: Any, args: tuple, kwargs: Optional[dict] = None) -> None:
        _infer_parameters(self, args, kwargs)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        # A parameter without a shape stands for itself: a lazy module reads it back.
        for name, value in self._parameters.items():
            if value is not None:
                destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()


def _infer_parameters(module: Any, args: tuple, kwargs: Optional[dict] = None) -> None:
    """Runs before the first forward; the module is an ordinary one afterwards."""
    module.initialize_parameters(*args, **(kwargs or {}))
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def _materialize_for(module: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
    """Makes room for the values that a state_dict has for parameters without a shape."""
    for name, value in itertools.chain(module._parameters.items(), module._buffers.items()):
        given = state_dict.get(prefix + name)
        if is_lazy(value) and isinstance(given, Tensor) and not is_lazy(given):
            with athanor.no_grad():
                value.materialize(given.shape)


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose in_features is the size of its first input's last dim."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:  # type: ignore[override]
        if self.has_uninitialized_params():
            with athanor.no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        elif self.in_features == 0:  # a state_dict gave the parameters
            self.in_features = self.weight.shape[-1]


class _LazyConv(LazyModuleMixin):
    """What lazy convolutions share: in_channels is the number of channels of the first input."""

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        bias = kwargs.pop("bias")
        super().__init__(0, 0, kernel_size, *args, bias=False, **kwargs)
        options = {"device": kwargs.get("device"), "dtype": kwargs.get("dtype")}
        self.weight = UninitializedParameter(**options)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(**options)

    def reset_parameters(self: Any) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if self.has_uninitialized_params():
            d = self._dims
            if input.dim() not in (d + 1, d + 2):
                raise RuntimeError(
                    f"Expected {d + 1}D (unbatched) or {d + 2}D (batched) input to {type(self).__name__}, but got "
                    f"input of size: {input.shape}"
                )
            with athanor.no_grad():
                self.in_channels = input.shape[-d - 1]
                if self.in_channels % self.groups != 0:
                    raise ValueError("in_channels must be divisible by groups")
                first, second = self.out_channels, self.in_channels
                if self.transposed:
                    first, second = second, first
                self.weight.materialize((first, second // self.groups, *self.kernel_size))
                if self.bias is not None:
                    self.bias.materialize((self.out_channels,))
                self.reset_parameters()
        elif self.in_channels == 0:  # a state_dict gave the parameters
            self.in_channels = self.weight.shape[0] if self.transposed else self.weight.shape[1] * self.groups


class _LazyPlainConv(_LazyConv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias=bias,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class _LazyTransposedConv(_LazyConv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias=bias,
            dilation=dilation,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class LazyConv1d(_LazyPlainConv, Conv1d):
    """A Conv1d whose in_channels is that of its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyPlainConv, Conv2d):
    """A Conv2d whose in_channels is that of its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyPlainConv, Conv3d):
    """A Conv3d whose in_channels is that of its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposedConv, ConvTranspose1d):
    """A ConvTranspose1d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposedConv, ConvTranspose2d):
    """A ConvTranspose2d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposedConv, ConvTranspose3d):
    """A ConvTranspose3d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """What lazy batch and instance norms share: num_features is the number of channels of the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=bias)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = athanor.tensor(0, dtype=athanor.int64, device=device)

    def reset_parameters(self: Any) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            _NormBase.reset_parameters(self)

    def reset_running_stats(self: Any) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            _NormBase.reset_running_stats(self)

    def initialize_parameters(self: Any, input: Tensor) -> None:  # type: ignore[override]
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            with athanor.no_grad():
                for value in (self.weight, self.bias, self.running_mean, self.running_var):
                    if is_lazy(value):
                        value.materialize((self.num_features,))
                self.reset_parameters()
        elif self.num_features == 0:  # a state_dict gave the parameters, or there are none
            known = [t for t in (self.weight, self.running_mean) if t is not None]
            self.num_features = known[0].shape[0] if known else input.shape[1]


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose num_features is the number of channels of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose num_features is the number of channels of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose num_features is the number of channels of its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose num_features is the number of channels of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose num_features is the number of channels of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose num_features is the number of channels of its first input."""

    cls_to_become = InstanceNorm3d
