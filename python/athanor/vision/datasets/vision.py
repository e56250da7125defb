"""The base of the datasets of images."""

from __future__ import annotations

import os
from typing import Any, Callable, List, Optional, Sequence

import athanor
from athanor import Tensor
from athanor._C import _data
from athanor.utils.data.dataset import Dataset, is_plain
from athanor.vision.transforms.transforms import begins_with_to_tensor, normalizing_steps


class StandardTransform:
    """A transform of images and one of targets."""

    def __init__(self, transform: Optional[Callable] = None, target_transform: Optional[Callable] = None) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> Any:
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self) -> str:
        body = [type(self).__name__]
        for head, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                lines = repr(transform).splitlines()
                body += [f"{head}{lines[0]}"] + [" " * len(head) + line for line in lines[1:]]
        return "\n".join(body)


class VisionDataset(Dataset[Any]):
    """Keeps a root folder and transforms: ``transforms`` of both, or one of images and one of targets."""

    _repr_indent = 4

    def __init__(
        self,
        root: Any = None,
        transforms: Optional[Callable] = None,
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform = transform
        self.target_transform = target_transform
        if transform is not None or target_transform is not None:
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if getattr(self, "transforms", None) is not None:
            body.append(repr(self.transforms))
        return "\n".join(["Dataset " + type(self).__name__, *(" " * self._repr_indent + line for line in body)])

    def extra_repr(self) -> str:
        """A line about the split, for repr()."""
        return ""


def as_image(values: Tensor) -> Any:
    """Bytes (channels, height, width) as a PIL image, or as they are where PIL is not installed."""
    try:
        from athanor.vision.transforms.functional import to_pil_image

        return to_pil_image(values)
    except ImportError:
        return values


class InMemoryImages(VisionDataset):
    """Images that lie in memory as bytes, with classes; whole batches are gathered in one pass where the transform
    allows it."""

    def _images(self) -> Tensor:
        """All images: bytes (N, channels, height, width)."""
        raise NotImplementedError

    targets: Any

    def __getitem__(self, index: Any) -> Any:
        values, target = self._images()[index], int(self.targets[index])
        # ToTensor makes the same of bytes as of the image made of them.
        image = values if begins_with_to_tensor(self.transform) else as_image(values)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def _can_collate(self) -> bool:
        return self.target_transform is None and normalizing_steps(self.transform) is not None

    def _collated(self, indices: Sequence[int]) -> Any:
        steps = normalizing_steps(self.transform)
        if steps is None or self.target_transform is not None:
            return NotImplemented
        images = self._images()
        if images.dtype is not athanor.uint8 or not images.is_contiguous() or not is_plain(indices):
            return NotImplemented
        if athanor.get_default_dtype() is not athanor.float32:
            return NotImplemented
        return [_data.gather_images(images, indices, steps), self._classes(list(indices))]

    def _classes(self, indices: List[int]) -> Tensor:
        targets = self.targets
        if isinstance(targets, Tensor):
            return targets[athanor.tensor(indices, dtype=athanor.int64)].to(athanor.int64)
        return athanor.tensor([int(targets[i]) for i in indices], dtype=athanor.int64)
