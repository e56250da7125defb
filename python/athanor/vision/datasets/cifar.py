"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009)."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional

import athanor
from athanor import Tensor
from athanor._C import _data
from athanor.vision.datasets.vision import InMemoryImages


class CIFAR10(InMemoryImages):
    """Ten kinds of things in 50000 images of 32 x 32 to train on and 10000 to test; examples are (image, class).

    Args:
        root: folder in which "cifar-10-batches-py" or "cifar-10-batches-bin" is, or the files themselves.
        train: which half.
        transform, target_transform: of image and class.
        download: nothing is downloaded here; files that are there are used.

    Raises:
        RuntimeError: files are missing.
        OSError: files are damaged.
    """

    base_folder = "cifar-10-batches-py"
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    _fine = False

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
        download: bool = False,
    ) -> None:
        super().__init__(os.fspath(root), transform=transform, target_transform=target_transform)
        self.train = train
        try:
            self._bytes, targets = _data.cifar(self._fine, self.root, train)
        except OSError as e:
            raise RuntimeError(f"Dataset not found or corrupted. It is not downloaded here: {e}") from None
        self.targets: List[int] = targets.tolist()

    def __len__(self) -> int:
        return self._bytes.size(0)

    def _images(self) -> Tensor:
        return self._bytes

    @property
    def data(self) -> Any:
        """All images as a NumPy array (N, 32, 32, 3), on the same memory."""
        return self._bytes.permute(0, 2, 3, 1).numpy()

    @data.setter
    def data(self, images: Any) -> None:
        self._bytes = athanor.as_tensor(images).permute(0, 3, 1, 2).contiguous()

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """The number of each class by its name."""
        return {name: i for i, name in enumerate(self.classes)}

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train is True else 'Test'}"


class CIFAR100(CIFAR10):
    """The same for 100 kinds."""

    base_folder = "cifar-100-python"
    _fine = True
    classes = (
        "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
        "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
        "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
        "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
        "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
        "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
        "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
    ).split()
