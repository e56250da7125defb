"""Images from files."""

from __future__ import annotations

import enum
import os
from typing import Any, Union

from athanor import Tensor
from athanor._C import _data


class ImageReadMode(enum.Enum):
    """Which channels an image shall have."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_NAMES = {"UNCHANGED": "", "GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def read_image(path: Union[str, "os.PathLike[str]"], mode: Union[ImageReadMode, str] = ImageReadMode.UNCHANGED,
               apply_exif_orientation: bool = False) -> Tensor:
    """A PNG or JPEG file as uint8 (channels, height, width).

    Args:
        mode: which channels the image shall have, as :class:`ImageReadMode` or the name of one.

    Raises:
        ValueError: an unknown mode.
        OSError: no such file, or a damaged one.
        NotImplementedError: libpng or libjpeg is not installed, or ``apply_exif_orientation``.
    """
    if apply_exif_orientation:
        raise NotImplementedError("read_image: apply_exif_orientation is not supported; turn the image with rot90 and flip")
    name = mode.name if isinstance(mode, ImageReadMode) else mode.upper() if isinstance(mode, str) else None
    if name not in _NAMES:
        raise ValueError(f"read_image: mode {mode!r}, expected one of {', '.join(_NAMES)}")
    return _data.decode_image(os.fspath(path), _NAMES[name])
