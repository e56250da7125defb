"""Resizing, sampling, padding and rearranging of images."""

from __future__ import annotations

import math
import warnings
from typing import Any, Optional

from athanor import _C
from athanor._C import Tensor

_ops = _C.ops

pixel_shuffle = _ops.pixel_shuffle
pixel_unshuffle = _ops.pixel_unshuffle
channel_shuffle = _ops.channel_shuffle
native_channel_shuffle = _ops.channel_shuffle


def pad(input: Tensor, pad: Any, mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """input with pad[0] elements before and pad[1] behind the last dim, pad[2] and pad[3] around the one before it, and
    so on; negative numbers cut off. mode: "constant" (value), "reflect", "replicate" or "circular".
    """
    return _ops.pad(input, pad, mode, value)


def _per_dim(value: Any, spatial: int, name: str) -> list:
    if isinstance(value, (list, tuple)):
        if len(value) != spatial:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {spatial} and {name} of {list(value)}"
            )
        return list(value)
    return [value] * spatial


def _target_size(
    input: Tensor, size: Any, scale_factor: Any, recompute_scale_factor: Optional[bool]
) -> tuple[list[int], list]:
    """The result's spatial sizes, and per dim the scale that places are computed by, None for that of the sizes."""
    spatial = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        return [int(s) for s in _per_dim(size, spatial, "output size")], [None] * spatial
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales = [float(s) for s in _per_dim(scale_factor, spatial, "scale factor")]
    sizes = [math.floor(float(n) * s) for n, s in zip(input.shape[2:], scales)]
    return sizes, [None] * spatial if recompute_scale_factor else scales


_NEAREST = (_ops.upsample_nearest1d, _ops.upsample_nearest2d, _ops.upsample_nearest3d)
_NEAREST_EXACT = (_ops._upsample_nearest_exact1d, _ops._upsample_nearest_exact2d, _ops._upsample_nearest_exact3d)
_AREA = (_ops.adaptive_avg_pool1d, _ops.adaptive_avg_pool2d, _ops.adaptive_avg_pool3d)
_BLENDING = {
    ("linear", 3): _ops.upsample_linear1d,
    ("bilinear", 4): _ops.upsample_bilinear2d,
    ("bicubic", 4): _ops.upsample_bicubic2d,
    ("trilinear", 5): _ops.upsample_trilinear3d,
}
_ANTIALIASED = {"bilinear": _ops._upsample_bilinear2d_aa, "bicubic": _ops._upsample_bicubic2d_aa}


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
    recompute_scale_factor: Optional[bool] = None,
    antialias: bool = False,
) -> Tensor:
    """input (N, C, L), (N, C, H, W) or (N, C, D, H, W) resized to `size` or by `scale_factor`, each one number or one
    per spatial dim. mode: "nearest", "nearest-exact", "area", "linear", "bilinear", "bicubic" or "trilinear".
    """
    blends = mode in ("linear", "bilinear", "bicubic", "trilinear")
    if not blends and mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    dims = input.dim()
    sizes, scales = _target_size(input, size, scale_factor, recompute_scale_factor)
    if antialias and not (mode in _ANTIALIASED and dims == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    if 3 <= dims <= 5:
        if mode == "nearest":
            return _NEAREST[dims - 3](input, sizes, *scales)
        if mode == "nearest-exact":
            return _NEAREST_EXACT[dims - 3](input, sizes, *scales)
        if mode == "area":
            return _AREA[dims - 3](input, sizes)
        if antialias:
            return _ANTIALIASED[mode](input, sizes, bool(align_corners), *scales)
        if (mode, dims) in _BLENDING:
            return _BLENDING[mode, dims](input, sizes, bool(align_corners), *scales)
        for known, wanted in _BLENDING:
            if mode == known:
                raise NotImplementedError(f"Got {dims}D input, but {mode} mode needs {wanted}D input")
    raise NotImplementedError(
        "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
        f"{dims}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
    )


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
) -> Tensor:
    """The old name of interpolate()."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate() by the nearest element."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate() with mode "bilinear" and aligned corners."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


_SAMPLING_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_SAMPLING_PADDING = {"zeros": 0, "border": 1, "reflection": 2}


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Optional[bool] = None,
) -> Tensor:
    """input (N, C, H, W) or (N, C, D, H, W) read at the places of grid (N, …, 2 or 3), which go from -1 to 1."""
    if mode not in _SAMPLING_MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _SAMPLING_PADDING:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired.",
            stacklevel=2,
        )
    return _ops.grid_sampler(input, grid, _SAMPLING_MODES[mode], _SAMPLING_PADDING[padding_mode], bool(align_corners))


def affine_grid(theta: Tensor, size: Any, align_corners: Optional[bool] = None) -> Tensor:
    """The grid that carries a result of `size` (N, C, H, W) or (N, C, D, H, W) through the affine maps theta."""
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired.",
            stacklevel=2,
        )
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    size = [int(n) for n in size]
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
            f"{tuple(size)}."
        )
    spatial = len(size) - 2
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (spatial, spatial + 1):
        raise ValueError(
            f"Expected a batch of {spatial}D affine matrices of shape Nx{spatial}x{spatial + 1} for size "
            f"{tuple(size)}. Got {tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    return _ops.affine_grid_generator(theta, size, bool(align_corners))
