"""Transforms that draw from the default generator."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import athanor
from athanor import Tensor
from athanor.vision.transforms import functional as F
from athanor.vision.transforms.functional import InterpolationMode
from athanor.vision.transforms.transforms import _ModuleLike, _size

__all__ = [
    "ColorJitter",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomResizedCrop",
    "RandomVerticalFlip",
]


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * athanor.rand(1).item()


def _whole(low: int, high: int) -> int:
    """A number from ``low`` to ``high`` - 1."""
    return int(athanor.randint(low, high, (1,)).item())


def _happens(p: float) -> bool:
    return athanor.rand(1).item() < p


class _WithProbability(_ModuleLike):
    """Base of transforms that are done with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def change(self, img: Any) -> Any:
        """What happens to the image, if it does."""
        raise NotImplementedError

    def forward(self, img: Any) -> Any:
        return self.change(img) if _happens(self.p) else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomHorizontalFlip(_WithProbability):
    """Left and right exchanged, with probability ``p``."""

    def change(self, img: Any) -> Any:
        return F.hflip(img)


class RandomVerticalFlip(_WithProbability):
    """Top and bottom exchanged, with probability ``p``."""

    def change(self, img: Any) -> Any:
        return F.vflip(img)


class RandomInvert(_WithProbability):
    """The negative, with probability ``p``."""

    def change(self, img: Any) -> Any:
        return F.invert(img)


class RandomGrayscale(_WithProbability):
    """Black and white in as many channels as before, with probability ``p``."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, 3 if F.get_image_num_channels(img) == 3 else 1)


class RandomCrop(_ModuleLike):
    """A part of size (height, width) anywhere in the image, after borders were put around it.

    Args:
        size: height and width; one number is a square.
        padding: borders as :class:`Pad` takes them.
        pad_if_needed: borders where the image is smaller than the part.
        fill, padding_mode: as :class:`Pad`.

    Raises:
        ValueError: the image is smaller than the part.
    """

    def __init__(
        self,
        size: Union[int, Sequence[int]],
        padding: Union[int, Sequence[int], None] = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _size(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img: Any, output_size: Tuple[int, int]) -> Tuple[int, int, int, int]:
        """Top, left, height and width of a part."""
        _, h, w = F.get_dimensions(img)
        height, width = output_size
        if h < height or w < width:
            raise ValueError(f"Required crop size {(height, width)} is larger than input image size {(h, w)}")
        if w == width and h == height:
            return 0, 0, h, w
        return _whole(0, h - height + 1), _whole(0, w - width + 1), height, width

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, h, w = F.get_dimensions(img)
        if self.pad_if_needed and w < self.size[1]:
            img = F.pad(img, [self.size[1] - w, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and h < self.size[0]:
            img = F.pad(img, [0, self.size[0] - h], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


class RandomResizedCrop(_ModuleLike):
    """A part of random area and shape, brought to ``size`` (Szegedy et al., CVPR 2015).

    Args:
        size: height and width; one number is a square.
        scale: bounds of the part's share of the area.
        ratio: bounds of width over height.
        interpolation, antialias: as :class:`Resize`.
    """

    def __init__(
        self,
        size: Union[int, Sequence[int]],
        scale: Tuple[float, float] = (0.08, 1.0),
        ratio: Tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: Optional[bool] = True,
    ) -> None:
        self.size = _size(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation
        self.antialias = antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> Tuple[int, int, int, int]:
        """Top, left, height and width of a part; the middle after ten that did not fit."""
        _, height, width = F.get_dimensions(img)
        for _ in range(10):
            area = height * width * _uniform(*scale)
            aspect = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
            w = int(round(math.sqrt(area * aspect)))
            h = int(round(math.sqrt(area / aspect)))
            if 0 < w <= width and 0 < h <= height:
                return _whole(0, height - h + 1), _whole(0, width - w + 1), h, w
        shape = width / height
        w, h = width, height
        if shape < min(ratio):
            h = int(round(w / min(ratio)))
        elif shape > max(ratio):
            w = int(round(h * max(ratio)))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)

    def __repr__(self) -> str:
        scale = tuple(round(s, 4) for s in self.scale)
        ratio = tuple(round(r, 4) for r in self.ratio)
        how = getattr(self.interpolation, "value", self.interpolation)
        return (
            f"{type(self).__name__}(size={self.size}, scale={scale}, ratio={ratio}, interpolation={how}, "
            f"antialias={self.antialias})"
        )


class _Others(_ModuleLike):
    """Base of transforms made of others."""

    def __init__(self, transforms: Sequence[Callable]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    def __repr__(self) -> str:
        return "".join([f"{type(self).__name__}(", *(f"\n    {t}" for t in self.transforms), "\n)"])


class RandomApply(_Others):
    """All of the transforms with probability ``p``, else none."""

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5) -> None:
        super().__init__(list(transforms))
        self.p = p

    def forward(self, img: Any) -> Any:
        if not _happens(self.p):
            return img
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return "".join([f"{type(self).__name__}(\n    p={self.p}", *(f"\n    {t}" for t in self.transforms), "\n)"])


class RandomOrder(_Others):
    """All of the transforms, in a random order."""

    def forward(self, img: Any) -> Any:
        for i in athanor.randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img


class RandomChoice(_Others):
    """One of the transforms, with probabilities in proportion to ``p``."""

    def __init__(self, transforms: Sequence[Callable], p: Optional[Sequence[float]] = None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def forward(self, img: Any) -> Any:
        weights = athanor.ones(len(self.transforms)) if self.p is None else athanor.tensor(self.p)
        return self.transforms[int(athanor.multinomial(weights.to(athanor.float32), 1).item())](img)


class ColorJitter(_ModuleLike):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    Args:
        brightness, contrast, saturation: b draws from [max(0, 1 - b), 1 + b]; or bounds.
        hue: h draws from [-h, h], at most 0.5; or bounds.

    Raises:
        ValueError: numbers out of range.
    """

    def __init__(
        self,
        brightness: Union[float, Tuple[float, float]] = 0,
        contrast: Union[float, Tuple[float, float]] = 0,
        saturation: Union[float, Tuple[float, float]] = 0,
        hue: Union[float, Tuple[float, float]] = 0,
    ) -> None:
        self.brightness = self._bounds("brightness", brightness)
        self.contrast = self._bounds("contrast", contrast)
        self.saturation = self._bounds("saturation", saturation)
        self.hue = self._bounds("hue", hue, center=0, bound=(-0.5, 0.5))

    @staticmethod
    def _bounds(
        name: str, value: Any, center: float = 1, bound: Tuple[float, float] = (0, math.inf)
    ) -> Optional[Tuple[float, float]]:
        if isinstance(value, (int, float)):
            if value < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            low, high = center - float(value), center + float(value)
            if center == 1:
                low = max(low, 0.0)
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            low, high = float(value[0]), float(value[1])
        else:
            raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
        if not bound[0] <= low <= high <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {[low, high]}.")
        return None if low == high == center else (low, high)

    def forward(self, img: Any) -> Any:
        changes: List[Tuple[Callable, Optional[Tuple[float, float]]]] = [
            (F.adjust_brightness, self.brightness),
            (F.adjust_contrast, self.contrast),
            (F.adjust_saturation, self.saturation),
            (F.adjust_hue, self.hue),
        ]
        order = athanor.randperm(4).tolist()
        factors = [None if bounds is None else _uniform(*bounds) for _, bounds in changes]
        for i in order:
            if factors[i] is not None:
                img = changes[i][0](img, factors[i])
        return img

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(brightness={self.brightness}, contrast={self.contrast}, "
            f"saturation={self.saturation}, hue={self.hue})"
        )


class RandomErasing(_ModuleLike):
    """A rectangle of a tensor overwritten, with probability ``p`` (Zhong et al., AAAI 2020).

    Args:
        p: probability.
        scale: bounds of the rectangle's share of the area.
        ratio: bounds of height over width.
        value: what is written: a number, one per channel, or "random".
        inplace: change the tensor itself.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Tuple[float, float] = (0.02, 0.33),
        ratio: Tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if p < 0 or p > 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    def _content(self, img: Tensor, h: int, w: int) -> Any:
        if self.value == "random":
            return athanor.randn(img.shape[-3], h, w)
        if isinstance(self.value, (list, tuple)):
            if len(self.value) not in (1, img.shape[-3]):
                raise ValueError(
                    f"If value is a sequence, it should have either a single value or {img.shape[-3]} (number of input "
                    "channels)"
                )
            return athanor.tensor(self.value, dtype=img.dtype).view(-1, 1, 1)
        return self.value

    def forward(self, img: Tensor) -> Tensor:
        if not _happens(self.p):
            return img
        height, width = img.shape[-2:]
        for _ in range(10):
            area = height * width * _uniform(*self.scale)
            aspect = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
            if 0 < h < height and 0 < w < width:
                i, j = _whole(0, height - h + 1), _whole(0, width - w + 1)
                return F.erase(img, i, j, h, w, self._content(img, h, w), self.inplace)
        return img

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(p={self.p}, scale={self.scale}, ratio={self.ratio}, value={self.value}, "
            f"inplace={self.inplace})"
        )
