"""Images from files."""

from __future__ import annotations

import os
from typing import Any, Union

from athanor import Tensor
from athanor._C import _data


class ImageReadMode:
    """Which channels an image shall have."""

    UNCHANGED = ""
    GRAY = "L"
    RGB = "RGB"
    RGB_ALPHA = "RGBA"


def read_image(path: Union[str, "os.PathLike[str]"], mode: str = ImageReadMode.UNCHANGED,
               apply_exif_orientation: bool = False) -> Tensor:
    """A PNG or JPEG file as uint8 (channels, height, width).

    Raises:
        OSError: no such file, or a damaged one.
        NotImplementedError: libpng or libjpeg is not installed, or ``apply_exif_orientation``.
    """
    if apply_exif_orientation:
        raise NotImplementedError("read_image: apply_exif_orientation is not supported; turn the image with rot90 and flip")
    return _data.decode_image(os.fspath(path), mode)
