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


def read_image(path: Union[str, "os.PathLike[str]"], mode: str = ImageReadMode.UNCHANGED, **_: Any) -> Tensor:
    """A PNG or JPEG file as uint8 (channels, height, width).

    Raises:
        OSError: no such file, or a damaged one.
        NotImplementedError: libpng or libjpeg is not installed.
    """
    return _data.decode_image(os.fspath(path), mode)
