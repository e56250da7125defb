"""Pictures of many images: make_grid, save_image."""

from __future__ import annotations

import math
import os
from typing import Any, BinaryIO, List, Optional, Tuple, Union

import athanor
from athanor import Tensor
from athanor._atomic_file import atomic_file
from athanor._C import _data

__all__ = ["make_grid", "save_image"]


def _normalized(image: Tensor, low: float, high: float) -> None:
    """Maps low … high to 0 … 1, in place."""
    image.clamp_(min=low, max=high)
    image.sub_(low).div_(max(high - low, 1e-5))


@athanor.no_grad()
def make_grid(
    tensor: Union[Tensor, List[Tensor]],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: Optional[Tuple[float, float]] = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images of one size side by side, nrow of them in a row, padding elements of pad_value around each.

    (N, C, H, W), a list of (C, H, W), one image (C, H, W) or (H, W) → (C, height, width); images of one channel get
    three. With normalize, value_range (by default the least and the greatest value, of each image with scale_each)
    becomes 0 … 1. A batch of one image is that image, without padding.

    Raises:
        TypeError: not a tensor or a list of tensors, or value_range is not a tuple.
    """
    if not isinstance(tensor, Tensor) and not (
        isinstance(tensor, list) and all(isinstance(image, Tensor) for image in tensor)
    ):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    images = athanor.stack(tensor, dim=0) if isinstance(tensor, list) else tensor
    if images.dim() == 2:
        images = images.unsqueeze(0)
    if images.dim() == 3:
        images = images.unsqueeze(0)
    if images.dim() == 4 and images.size(1) == 1:
        images = athanor.cat((images, images, images), 1)
    if normalize:
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
        images = images.clone()
        for part in images if scale_each else [images]:
            low, high = value_range if value_range is not None else (float(part.min()), float(part.max()))
            _normalized(part, low, high)
    if images.size(0) == 1:
        return images.squeeze(0)
    count, channels = images.size(0), images.size(1)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = images.size(2) + padding, images.size(3) + padding
    grid = images.new_full((channels, height * rows + padding, width * columns + padding), pad_value)
    for k in range(count):
        top, left = (k // columns) * height + padding, (k % columns) * width + padding
        grid[:, top : top + height - padding, left : left + width - padding] = images[k]
    return grid


@athanor.no_grad()
def save_image(
    tensor: Union[Tensor, List[Tensor]],
    fp: Union[str, "os.PathLike[str]", BinaryIO],
    format: Optional[str] = None,
    **kwargs: Any,
) -> None:
    """Writes make_grid(tensor, **kwargs), values of 0 … 1, as a file of the format that the name's ending or ``format``
    says. PNG needs nothing; other formats need PIL.

    Raises:
        NotImplementedError: another format than PNG without PIL.
    """
    image = make_grid(tensor, **kwargs).mul(255).add_(0.5).clamp_(0, 255).to("cpu", athanor.uint8)
    name = os.fspath(fp) if isinstance(fp, (str, os.PathLike)) else None
    kind = (format or os.path.splitext(name or "")[1].lstrip(".")).lower()
    if kind != "png":
        try:
            from PIL import Image
        except ImportError:
            raise NotImplementedError(f"save_image: PIL is not installed, which writes {kind or 'this'!r}; "
                                      "PNG needs nothing") from None
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(fp, format=format)
        return
    content = _data.encode_png(image)
    if name is None:
        fp.write(content)  # type: ignore[union-attr]
        return
    with atomic_file(name) as file:
        file.write(content)
