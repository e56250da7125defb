"""Event files for TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Dict, Optional

import athanor
from athanor import Tensor
from athanor._C import _io

__all__ = ["SummaryWriter"]


def _tensor(values: Any) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else athanor.as_tensor(values)


class SummaryWriter:
    """Appends to one file of events in ``log_dir``, readable to its last whole record whenever the program ends.

    Args:
        log_dir: "runs/" with time and host unless given; made if it is missing.
        comment: added to the default folder's name.
        filename_suffix: added to the file's name.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        log_dir: Optional[str] = None,
        comment: str = "",
        purge_step: Optional[int] = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = os.path.join("runs", f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self._writer = _io.SummaryWriter(self.log_dir, filename_suffix)

    def get_logdir(self) -> str:
        return self.log_dir

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Optional[int] = None,
                   walltime: Any = None, new_style: bool = False, double_precision: bool = False) -> None:
        """A number, or a tensor of one."""
        self._writer.add_scalar(tag, float(scalar_value), global_step or 0)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Dict[str, Any], global_step: Optional[int] = None, *_: Any
    ) -> None:
        """Several numbers under "main_tag/name"."""
        self._writer.add_scalars(main_tag, {k: float(v) for k, v in tag_scalar_dict.items()}, global_step or 0)

    def add_histogram(self, tag: str, values: Any, global_step: Optional[int] = None, bins: Any = 64,
                      walltime: Any = None, max_bins: Any = None) -> None:
        """How often values are how large, in intervals of equal width."""
        self._writer.add_histogram(tag, _tensor(values), global_step or 0, bins if isinstance(bins, int) else 64)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Any = None, dataformats: str = "CHW"
    ) -> None:
        """An image: bytes, or floats from 0 to 1."""
        image = _tensor(img_tensor)
        if dataformats == "HWC":
            image = image.permute(2, 0, 1)
        elif dataformats not in ("CHW", "HW"):
            raise ValueError(f"add_image: expected dataformats to be 'CHW', 'HWC' or 'HW', got {dataformats!r}")
        self._writer.add_image(tag, image.contiguous(), global_step or 0)

    def add_images(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Any = None,
                   dataformats: str = "NCHW") -> None:
        """Images (N, C, H, W), or (N, H, W, C), in a grid."""
        images = _tensor(img_tensor)
        if dataformats == "NHWC":
            images = images.permute(0, 3, 1, 2)
        elif dataformats != "NCHW":
            raise ValueError(f"add_images: expected dataformats to be 'NCHW' or 'NHWC', got {dataformats!r}")
        self._writer.add_images(tag, images.contiguous(), global_step or 0)

    def add_text(self, tag: str, text_string: str, global_step: Optional[int] = None, *_: Any) -> None:
        """A text, shown as Markdown."""
        self._writer.add_text(tag, text_string, global_step or 0)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> "SummaryWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
