"""Images of noise."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import athanor
from athanor.vision.datasets.vision import VisionDataset, as_image


class FakeData(VisionDataset):
    """Images of noise with random classes, the same for an index every time."""

    def __init__(
        self,
        size: int = 1000,
        image_size: Tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size = size
        self.num_classes = num_classes
        self.image_size = image_size
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> Tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = athanor.Generator()
        generator.manual_seed(index + self.random_offset)
        values = athanor.randint(0, 256, self.image_size, generator=generator).to(athanor.uint8)
        target: Any = int(athanor.randint(0, self.num_classes, (1,), generator=generator).item())
        image = as_image(values)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return self.size
