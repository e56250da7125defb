"""The transforms as functions. Tensors are (..., channels, height, width); PIL's images go through PIL."""

from __future__ import annotations

import enum
import sys
from typing import Any, List, Optional, Sequence, Tuple, Union

import athanor
from athanor import Tensor
from athanor._C import _io


class InterpolationMode(enum.Enum):
    """How sizes are changed."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PIL_FILTERS = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def is_pil_image(image: Any) -> bool:
    """Whether ``image`` is one of PIL's; without loading PIL."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)


def _is_array(image: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(image, numpy.ndarray)


def _expect_image(image: Any) -> None:
    if not isinstance(image, Tensor) and not is_pil_image(image):
        raise TypeError(f"Tensor is not a torch image: expected a tensor or a PIL image, got {type(image)}")
    if isinstance(image, Tensor) and image.dim() < 2:
        raise TypeError(f"Tensor is not a torch image: expected (..., H, W), got shape {tuple(image.shape)}")


def get_dimensions(image: Any) -> List[int]:
    """Channels, height and width."""
    _expect_image(image)
    if isinstance(image, Tensor):
        return [1 if image.dim() == 2 else image.shape[-3], image.shape[-2], image.shape[-1]]
    return [len(image.getbands()), image.height, image.width]


def get_image_size(image: Any) -> List[int]:
    """Width and height."""
    _, height, width = get_dimensions(image)
    return [width, height]


def get_image_num_channels(image: Any) -> int:
    return get_dimensions(image)[0]


# From and to PIL and NumPy.


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image as a tensor (channels, height, width) of its own dtype: bytes, or int32, float32, bool."""
    if not is_pil_image(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    if pic.mode in ("I", "F"):
        dtype = athanor.int32 if pic.mode == "I" else athanor.float32
        return _io.over_buffer(bytearray(pic.tobytes()), dtype, [1, pic.height, pic.width])
    if pic.mode.startswith("I;16"):
        raise TypeError("16-bit images have no dtype here; convert('I') first")
    if pic.mode == "1":
        pic = pic.convert("L")
        return _io.over_buffer(bytearray(pic.tobytes()), athanor.uint8, [1, pic.height, pic.width]) != 0
    if pic.mode == "P":
        channels = 1
    else:
        channels = len(pic.getbands())
    rows = _io.over_buffer(bytearray(pic.tobytes()), athanor.uint8, [pic.height, pic.width, channels])
    return rows.permute(2, 0, 1).contiguous()


def to_tensor(pic: Any) -> Tensor:
    """A PIL image, an array (H, W) or (H, W, C), or a tensor (C, H, W), as a tensor (C, H, W).

    Bytes become floats from 0 to 1, other dtypes keep their values.

    Raises:
        TypeError: something else.
        ValueError: an array or tensor of other dimensions.
    """
    if isinstance(pic, Tensor):
        if pic.dim() not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
        image = pic if pic.dim() == 3 else pic.unsqueeze(0)
    elif _is_array(pic):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        image = athanor.from_numpy(pic.copy() if not pic.flags.writeable or min(pic.strides, default=0) < 0 else pic)
        image = image.unsqueeze(0) if image.dim() == 2 else image.permute(2, 0, 1).contiguous()
    elif is_pil_image(pic):
        image = pil_to_tensor(pic)
        if image.dtype is athanor.bool:
            return image.to(athanor.float32)
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    if image.dtype is athanor.uint8:
        return image.to(athanor.get_default_dtype()).div_(255)
    return image


def to_pil_image(pic: Any, mode: Optional[str] = None) -> Any:
    """A tensor (C, H, W) or (H, W), or an array (H, W, C), as a PIL image; floats are taken as 0 to 1.

    Raises:
        TypeError, ValueError: what is no image.
        ImportError: PIL is not installed.
    """
    from PIL import Image

    if _is_array(pic):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        return Image.fromarray(pic if pic.ndim == 2 or pic.shape[2] != 1 else pic[:, :, 0], mode)
    if not isinstance(pic, Tensor):
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if pic.dim() not in (2, 3):
        raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
    image = pic.detach().cpu()
    image = image.unsqueeze(0) if image.dim() == 2 else image
    channels, height, width = image.shape
    if channels > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {channels} channels.")
    if image.is_floating_point() and mode != "F":
        image = image.mul(255).to(athanor.uint8)
    elif image.dtype is athanor.bool:
        image = image.to(athanor.uint8).mul_(255)
    default = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    if image.dtype is athanor.int32:
        default = "I"
    elif image.is_floating_point():
        default = "F"
    elif image.dtype is not athanor.uint8:
        raise TypeError(f"Input type {image.dtype} is not supported")
    values = image.permute(1, 2, 0).contiguous()
    content = _io.storage_memory(values)[: values.numel() * values.element_size()]
    return Image.frombytes(mode or default, (width, height), bytes(content))


def convert_image_dtype(image: Tensor, dtype: Any = athanor.float32) -> Tensor:
    """The image in another dtype, its range stretched to that of the dtype: bytes 0 to 255, floats 0 to 1."""
    if image.dtype is dtype:
        return image
    ranges = {athanor.uint8: 255, athanor.int8: 127, athanor.int16: 32767, athanor.int32: 2**31 - 1}
    ranges[athanor.int64] = 2**63 - 1
    if image.is_floating_point():
        if dtype not in ranges:
            return image.to(dtype)
        if dtype in (athanor.int32, athanor.int64) and image.dtype is athanor.float32:
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
        return image.mul(ranges[dtype] + 1.0 - 1e-3).to(dtype)
    if dtype not in ranges:
        return image.to(dtype).div_(ranges[image.dtype])
    have, want = ranges[image.dtype], ranges[dtype]
    if have > want:
        return athanor.div(image, (have + 1) // (want + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype).mul_((want + 1) // (have + 1))


# Values.


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std, one value for all channels or one for each.

    Raises:
        TypeError: no tensor, or one of integers.
        ValueError: fewer than three dimensions, or a deviation of 0.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.dim() < 3:
        raise ValueError(
            f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.size()}"
        )
    means = athanor.as_tensor(mean, dtype=tensor.dtype, device=tensor.device)
    deviations = athanor.as_tensor(std, dtype=tensor.dtype, device=tensor.device)
    if (deviations == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
    if not inplace:
        tensor = tensor.clone()
    return tensor.sub_(_per_channel(means)).div_(_per_channel(deviations))


def _per_channel(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1) if values.dim() == 1 else values


def rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """The brightness 0.2989 R + 0.587 G + 0.114 B, in one channel or three."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if is_pil_image(image):
        gray = image.convert("L")
        return gray if num_output_channels == 1 else gray.convert("RGB")
    _expect_image(image)
    if image.shape[-3] == 3:
        weights = athanor.tensor([0.2989, 0.587, 0.114]).view(3, 1, 1)
        gray = (image.to(athanor.float32) * weights).sum(dim=-3, keepdim=True).to(image.dtype)
    else:
        gray = image.clone()
    return gray if num_output_channels == 1 else gray.expand(*image.shape[:-3], 3, *image.shape[-2:])


to_grayscale = rgb_to_grayscale


def _blend(image: Tensor, other: Tensor, ratio: float) -> Tensor:
    bound = 1.0 if image.is_floating_point() else 255.0
    mixed = image.to(athanor.float32) * ratio + other.to(athanor.float32) * (1.0 - ratio)
    return mixed.clamp(0, bound).to(image.dtype)


def _enhance(image: Any, kind: str, factor: float) -> Any:
    from PIL import ImageEnhance

    return getattr(ImageEnhance, kind)(image).enhance(factor)


def _check_factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ValueError(f"{name} ({factor}) is not non-negative.")


def adjust_brightness(image: Any, brightness_factor: float) -> Any:
    """0 is black, 1 the image, 2 twice as bright."""
    _check_factor("brightness_factor", brightness_factor)
    if is_pil_image(image):
        return _enhance(image, "Brightness", brightness_factor)
    _expect_image(image)
    return _blend(image, athanor.zeros_like(image), brightness_factor)


def adjust_contrast(image: Any, contrast_factor: float) -> Any:
    """0 is the mean gray, 1 the image."""
    _check_factor("contrast_factor", contrast_factor)
    if is_pil_image(image):
        return _enhance(image, "Contrast", contrast_factor)
    _expect_image(image)
    gray = rgb_to_grayscale(image).to(athanor.float32)
    return _blend(image, gray.mean(dim=(-3, -2, -1), keepdim=True), contrast_factor)


def adjust_saturation(image: Any, saturation_factor: float) -> Any:
    """0 is black and white, 1 the image."""
    _check_factor("saturation_factor", saturation_factor)
    if is_pil_image(image):
        return _enhance(image, "Color", saturation_factor)
    _expect_image(image)
    return image if image.shape[-3] == 1 else _blend(image, rgb_to_grayscale(image), saturation_factor)


def adjust_hue(image: Any, hue_factor: float) -> Any:
    """Turns colours by ``hue_factor`` of the circle, -0.5 to 0.5. Raises ValueError beyond."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if is_pil_image(image):
        if image.mode in ("L", "1", "I", "F"):
            return image
        return to_pil_image(adjust_hue(pil_to_tensor(image), hue_factor))
    _expect_image(image)
    if image.shape[-3] == 1:
        return image
    rgb = image if image.is_floating_point() else convert_image_dtype(image)
    turned = _from_hsv(*_to_hsv(rgb, hue_factor))
    return turned if image.is_floating_point() else convert_image_dtype(turned, image.dtype)


# By the formulas of Python's colorsys, in the order that gives torchvision's bytes.


def _to_hsv(rgb: Tensor, turn: float) -> Tuple[Tensor, Tensor, Tensor]:
    largest, smallest = rgb.amax(dim=-3), rgb.amin(dim=-3)
    gray, spread = largest == smallest, largest - smallest
    one = athanor.ones_like(largest)
    saturation = spread / athanor.where(gray, one, largest)
    from_r, from_g, from_b = ((largest - c) / athanor.where(gray, one, spread) for c in rgb.unbind(dim=-3))
    of_green = athanor.where(largest == rgb.select(-3, 1), from_r + 2.0 - from_b, from_g + 4.0 - from_r)
    sixths = athanor.where(largest == rgb.select(-3, 0), from_b - from_g, of_green)
    hue = (sixths / 6.0 + 1.0).fmod(1.0)
    return (hue + turn).remainder(1.0), saturation, largest


def _from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    sixth = (hue * 6.0).floor()
    part = hue * 6.0 - sixth
    low = (value * (1.0 - saturation)).clamp(0.0, 1.0)
    falling = (value * (1.0 - saturation * part)).clamp(0.0, 1.0)
    rising = (value * (1.0 - saturation * (1.0 - part))).clamp(0.0, 1.0)
    sixth = sixth.to(athanor.int64).remainder(6)
    # Which of them a channel takes in each sixth of the circle.
    ways = ((value, falling, low, low, rising, value), (rising, value, value, falling, low, low),
            (low, low, rising, value, value, falling))
    channels = []
    for way in ways:
        channel = way[0]
        for k in range(1, 6):
            channel = athanor.where(sixth == k, way[k], channel)
        channels.append(channel)
    return athanor.stack(channels, dim=-3)


def invert(image: Any) -> Any:
    """The negative."""
    if is_pil_image(image):
        from PIL import ImageOps

        return ImageOps.invert(image)
    _expect_image(image)
    return (1.0 if image.is_floating_point() else 255) - image


def erase(image: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """Puts ``v`` into the rectangle of height ``h`` and width ``w`` at row ``i`` and column ``j``."""
    _expect_image(image)
    result = image if inplace else image.clone()
    result[..., i : i + h, j : j + w] = v
    return result


# Places.


def hflip(image: Any) -> Any:
    """Left and right exchanged."""
    _expect_image(image)
    return image.flip(-1) if isinstance(image, Tensor) else image.transpose(0)


def vflip(image: Any) -> Any:
    """Top and bottom exchanged."""
    _expect_image(image)
    return image.flip(-2) if isinstance(image, Tensor) else image.transpose(1)


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of the image; where it passes the edges there are zeros."""
    _expect_image(image)
    if not isinstance(image, Tensor):
        return image.crop((left, top, left + width, top + height))
    _, h, w = get_dimensions(image)
    if left >= 0 and top >= 0 and left + width <= w and top + height <= h:
        return image[..., top : top + height, left : left + width]
    result = athanor.zeros((*image.shape[:-2], height, width), dtype=image.dtype, device=image.device)
    t, b = max(top, 0), min(top + height, h)
    l, r = max(left, 0), min(left + width, w)
    if t < b and l < r:
        result[..., t - top : b - top, l - left : r - left] = image[..., t:b, l:r]
    return result


def center_crop(image: Any, output_size: Union[int, Sequence[int]]) -> Any:
    """The middle; where the image is too small, zeros around it."""
    height, width = _pair(output_size)
    _, h, w = get_dimensions(image)
    if width > w or height > h:
        left = (width - w) // 2 if width > w else 0
        top = (height - h) // 2 if height > h else 0
        right = (width - w + 1) // 2 if width > w else 0
        bottom = (height - h + 1) // 2 if height > h else 0
        image = pad(image, [left, top, right, bottom])
        _, h, w = get_dimensions(image)
        if width == w and height == h:
            return image
    return crop(image, int(round((h - height) / 2.0)), int(round((w - width) / 2.0)), height, width)


def _pair(size: Union[int, Sequence[int]]) -> Tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return size[0], size[1]


def _borders(padding: Union[int, Sequence[int]]) -> Tuple[int, int, int, int]:
    """Left, top, right, bottom."""
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if len(padding) == 1:
        return padding[0], padding[0], padding[0], padding[0]
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    if len(padding) != 4:
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
    return tuple(padding)  # type: ignore[return-value]


def pad(image: Any, padding: Union[int, Sequence[int]], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Borders left, top, right and bottom: of a value, or of the image's edge, mirrored without ("reflect") or with
    ("symmetric") the edge itself."""
    _expect_image(image)
    left, top, right, bottom = _borders(padding)
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    if not isinstance(image, Tensor):
        if padding_mode == "constant":
            from PIL import ImageOps

            return ImageOps.expand(image, border=(left, top, right, bottom), fill=fill)
        return to_pil_image(pad(pil_to_tensor(image), padding, fill, padding_mode), image.mode)
    if padding_mode == "constant":
        return _pad_constant(image, left, top, right, bottom, fill)
    if min(left, top, right, bottom) < 0:
        raise ValueError("Padding must not be negative where the image's edges are continued")
    height, width = image.shape[-2:]
    rows = _continued(height, top, bottom, padding_mode)
    columns = _continued(width, left, right, padding_mode)
    return image.index_select(-2, rows).index_select(-1, columns)


def _pad_constant(image: Tensor, left: int, top: int, right: int, bottom: int, fill: Any) -> Tensor:
    if isinstance(fill, (list, tuple)):
        fill = fill[0] if len(fill) == 1 else athanor.tensor(fill, dtype=image.dtype).view(-1, 1, 1)
    height, width = image.shape[-2:]
    new = (*image.shape[:-2], height + top + bottom, width + left + right)
    result = athanor.zeros(new, dtype=image.dtype, device=image.device)
    if isinstance(fill, Tensor) or fill:
        result[...] = fill
    part = image[..., max(-top, 0) : height - max(-bottom, 0), max(-left, 0) : width - max(-right, 0)]
    t, l = max(top, 0), max(left, 0)
    result[..., t : t + part.shape[-2], l : l + part.shape[-1]] = part
    return result


def _continued(size: int, before: int, after: int, mode: str) -> Tensor:
    """Which line of an image each line of the padded one is."""
    places = athanor.arange(-before, size + after)
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "reflect":
        if max(before, after) >= size:
            raise ValueError(f"reflect: borders should be smaller than the image's {size}, got {before} and {after}")
        places = places.abs()
        return athanor.where(places >= size, 2 * (size - 1) - places, places)
    places = places.remainder(2 * size)
    return athanor.where(places >= size, 2 * size - 1 - places, places)


def _target_size(image: Any, size: Any, max_size: Optional[int]) -> Tuple[int, int]:
    """Height and width after ``resize``."""
    if not isinstance(size, int) and len(size) == 2:
        if max_size is not None:
            raise ValueError("max_size should only be passed if size specifies the length of the smaller edge")
        return size[0], size[1]
    shorter = size if isinstance(size, int) else size[0]
    _, h, w = get_dimensions(image)
    short, long = (w, h) if w <= h else (h, w)
    new_short, new_long = shorter, int(shorter * long / short)
    if max_size is not None:
        if max_size <= shorter:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge "
                f"size = {size}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if w <= h else (new_short, new_long)


def resize(
    image: Any,
    size: Union[int, Sequence[int]],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: Optional[int] = None,
    antialias: Optional[bool] = True,
) -> Any:
    """The image at another size: (height, width), or one number for the shorter edge."""
    mode = interpolation.value if isinstance(interpolation, InterpolationMode) else _name_of_filter(interpolation)
    height, width = _target_size(image, size, max_size)
    _, h, w = get_dimensions(image)
    if (h, w) == (height, width):
        return image
    if not isinstance(image, Tensor):
        return image.resize((width, height), _PIL_FILTERS[mode])
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(f"interpolation {mode!r} works with PIL images only")
    from athanor.nn.functional import interpolate

    smooth = mode in ("bilinear", "bicubic")
    values = image.reshape(-1, *image.shape[-3:]) if image.dim() != 4 else image
    if image.dim() == 2:
        values = image.reshape(1, 1, *image.shape)
    exact = image.is_floating_point()
    result = interpolate(
        values if exact or not smooth else values.to(athanor.float32),
        size=(height, width),
        mode=mode,
        align_corners=False if smooth else None,
        antialias=bool(antialias) and smooth,
    )
    if smooth and not exact:
        result = result.round()
        result = (result.clamp(0, 255) if image.dtype is athanor.uint8 else result).to(image.dtype)
    return result.reshape(*image.shape[:-2], height, width)


def _name_of_filter(number: Any) -> str:
    for name, value in _PIL_FILTERS.items():
        if value == number:
            return name
    raise TypeError(f"Argument interpolation should be of type InterpolationMode or int, got {number!r}")


def resized_crop(
    image: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: Optional[bool] = True,
) -> Any:
    """A part of the image, brought to ``size``."""
    return resize(crop(image, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(image: Any, size: Union[int, Sequence[int]]) -> Tuple[Any, Any, Any, Any, Any]:
    """The four corners and the middle."""
    height, width = _pair(size)
    _, h, w = get_dimensions(image)
    if width > w or height > h:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(h, w)}")
    return (
        crop(image, 0, 0, height, width),
        crop(image, 0, w - width, height, width),
        crop(image, h - height, 0, height, width),
        crop(image, h - height, w - width, height, width),
        center_crop(image, [height, width]),
    )


def ten_crop(image: Any, size: Union[int, Sequence[int]], vertical_flip: bool = False) -> Tuple[Any, ...]:
    """The five crops of the image and of its mirror image."""
    return five_crop(image, size) + five_crop(vflip(image) if vertical_flip else hflip(image), size)
