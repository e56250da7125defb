"""Transforms that draw nothing, and those that put others together."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from athanor import Tensor
from athanor.vision.transforms import functional as F
from athanor.vision.transforms.functional import InterpolationMode

__all__ = [
    "CenterCrop",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "Grayscale",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "Resize",
    "TenCrop",
    "ToPILImage",
    "ToTensor",
]


class Compose:
    """Transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return "".join([f"{type(self).__name__}(", *(f"\n    {t}" for t in self.transforms), "\n)"])


class ToTensor:
    """Images, arrays (H, W, C) of bytes, or tensors of bytes, as floats (C, H, W) from 0 to 1."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """A PIL image as a tensor (C, H, W) of its own dtype; a tensor stays as it is."""

    def __call__(self, pic: Any) -> Tensor:
        return pic if isinstance(pic, Tensor) else F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToPILImage:
    """A tensor (C, H, W) or an array (H, W, C) as a PIL image."""

    def __init__(self, mode: Optional[str] = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class _ModuleLike:
    """Transforms that torchvision makes modules: they have ``forward``, and may be used as part of a Sequential."""

    def forward(self, img: Any) -> Any:
        """The image, changed as the class says: PIL's, or a tensor (…, channels, height, width). Raises TypeError for
        anything else."""
        raise NotImplementedError

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ConvertImageDtype(_ModuleLike):
    """The image in another dtype, its range stretched to that of the dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def forward(self, img: Tensor) -> Tensor:
        return F.convert_image_dtype(img, self.dtype)


class Normalize(_ModuleLike):
    """(x - mean) / std, one value for all channels or one for each; on tensors (..., C, H, W)."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def forward(self, img: Tensor) -> Tensor:
        return F.normalize(img, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


class Resize(_ModuleLike):
    """The image at another size: (height, width), or one number for the shorter edge, the longer at most ``max_size``."""

    def __init__(
        self,
        size: Union[int, Sequence[int]],
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: Optional[int] = None,
        antialias: Optional[bool] = True,
    ) -> None:
        if not isinstance(size, (int, list, tuple)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, (list, tuple)) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size = size
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        how = getattr(self.interpolation, "value", self.interpolation)
        detail = f"(size={self.size}, interpolation={how}, max_size={self.max_size}, antialias={self.antialias})"
        return type(self).__name__ + detail


def _size(size: Union[int, Sequence[int]]) -> Tuple[int, int]:
    return F._pair(size)


class CenterCrop(_ModuleLike):
    """The middle of the image; where it is too small, zeros around it."""

    def __init__(self, size: Union[int, Sequence[int]]) -> None:
        self.size = _size(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class Pad(_ModuleLike):
    """Borders: one number, (left/right, top/bottom) or (left, top, right, bottom)."""

    def __init__(self, padding: Union[int, Sequence[int]], fill: Any = 0, padding_mode: str = "constant") -> None:
        F._borders(padding)
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        detail = f"(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"
        return type(self).__name__ + detail


class FiveCrop(_ModuleLike):
    """The four corners and the middle, as a tuple."""

    def __init__(self, size: Union[int, Sequence[int]]) -> None:
        self.size = _size(size)

    def forward(self, img: Any) -> Tuple[Any, ...]:
        return F.five_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class TenCrop(_ModuleLike):
    """The five crops of the image and of its mirror image, as a tuple."""

    def __init__(self, size: Union[int, Sequence[int]], vertical_flip: bool = False) -> None:
        self.size = _size(size)
        self.vertical_flip = vertical_flip

    def forward(self, img: Any) -> Tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, vertical_flip={self.vertical_flip})"


class Grayscale(_ModuleLike):
    """The brightness, in one channel or three."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_output_channels={self.num_output_channels})"


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def begins_with_to_tensor(transform: Any) -> bool:
    """Whether ``transform`` makes a tensor of an image before anything else."""
    if type(transform) is Compose:
        return len(transform.transforms) > 0 and begins_with_to_tensor(transform.transforms[0])
    return type(transform) in (ToTensor, PILToTensor)


def normalizing_steps(transform: Any) -> Optional[List[Tuple[List[float], List[float]]]]:
    """The means and deviations of a transform that is ToTensor and then nothing but Normalize, else None."""
    parts = list(transform.transforms) if type(transform) is Compose else [transform]
    if not parts or type(parts[0]) is not ToTensor:
        return None
    steps = []
    for part in parts[1:]:
        if type(part) is not Normalize:
            return None
        pair = tuple([float(v) for v in values] if _is_row(values) else [] for values in (part.mean, part.std))
        if not pair[0] or not pair[1] or 0.0 in pair[1]:
            return None
        steps.append(pair)
    return steps  # type: ignore[return-value]


def _is_row(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(isinstance(v, (int, float)) for v in values)
