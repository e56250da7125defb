"""MNIST and data sets in its form."""

from __future__ import annotations

import os
import string
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from athanor import Tensor
from athanor._C import _data
from athanor.vision.datasets.vision import InMemoryImages


_downloaded: Set[Tuple[str, str]] = set()  # what this process asked for with download=True


class MNIST(InMemoryImages):
    """Handwritten digits (LeCun et al., 1998): 60000 to train on, 10000 to test; examples are (image, class).

    Images are PIL's, or bytes (1, 28, 28) where PIL is not installed; ``data`` (N, 28, 28) and ``targets`` (N) hold them
    all. With ``ToTensor`` and ``Normalize`` a DataLoader gathers whole batches at once.

    Args:
        root: folder in which "MNIST/raw" is, or the files themselves.
        train: which half.
        transform, target_transform: of image and class.
        download: fetch what is missing. Where nothing can be fetched, digits are generated, and a line says so. Programs
            ask for that with one half and expect the other to be there then: it is fetched or generated, too.

    Raises:
        RuntimeError: files are missing, and ``download`` is False.
        OSError: files are damaged.
    """

    classes = [
        "0 - zero",
        "1 - one",
        "2 - two",
        "3 - three",
        "4 - four",
        "5 - five",
        "6 - six",
        "7 - seven",
        "8 - eight",
        "9 - nine",
    ]
    _name = "mnist"
    _generated = True  # where nothing can be had

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
        self.data, self.targets = self._load(train, download)

    def _load(self, train: bool, download: bool) -> Tuple[Tensor, Tensor]:
        place = (self._name, os.path.realpath(self.root))
        if download:
            os.makedirs(self.root, exist_ok=True)
            _downloaded.add(place)
        elif place in _downloaded and not self._exists():
            download = True  # nothing was written where the first half was asked for
        try:
            images, targets = _data.mnist(self._name, self.root, train, download, download and self._generated)
        except OSError as e:
            if download or self._exists():
                raise
            raise RuntimeError(f"Dataset not found. You can use download=True to download it ({e})") from None
        return images.squeeze(1), targets

    def _exists(self) -> bool:
        """Whether there is something that looks like the files."""
        folders = [self.root, os.path.join(self.root, "raw"), os.path.dirname(self.raw_folder), self.raw_folder]
        return any("ubyte" in name for f in folders if os.path.isdir(f) for name in os.listdir(f))

    def __len__(self) -> int:
        return len(self.data)

    def _images(self) -> Tensor:
        return self.data.unsqueeze(1)

    @property
    def raw_folder(self) -> str:
        """Where the files lie as they were downloaded."""
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self) -> str:
        """Where torchvision once kept tensors; nothing is written there."""
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """The number of each class by its name."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def train_data(self) -> Tensor:
        """The old name of data."""
        return self.data

    @property
    def train_labels(self) -> Tensor:
        """The old name of targets."""
        return self.targets

    @property
    def test_data(self) -> Tensor:
        """The old name of data."""
        return self.data

    @property
    def test_labels(self) -> Tensor:
        """The old name of targets."""
        return self.targets

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train is True else 'Test'}"


class FashionMNIST(MNIST):
    """Ten kinds of clothing (Xiao et al., 2017)."""

    classes = [
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ]
    _name = "fashion-mnist"
    _generated = False


class KMNIST(MNIST):
    """Ten cursive Japanese characters (Clanuwat et al., 2018)."""

    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
    _name = "kmnist"
    _generated = False


class EMNIST(MNIST):
    """Letters and digits (Cohen et al., 2017). ``split``: byclass, bymerge, balanced, letters, digits or mnist."""

    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    _merged = {"c", "i", "j", "k", "l", "m", "o", "p", "s", "u", "v", "w", "x", "y", "z"}
    _all = list(string.digits + string.ascii_letters)
    _of_split: Dict[str, List[str]] = {
        "byclass": sorted(_all),
        "bymerge": sorted(set(_all) - _merged),
        "balanced": sorted(set(_all) - _merged),
        "letters": ["N/A"] + list(string.ascii_lowercase),
        "digits": list(string.digits),
        "mnist": list(string.digits),
    }
    _generated = False

    def __init__(self, root: Any, split: str, **kwargs: Any) -> None:
        if split not in self.splits:
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are {self.splits}.")
        self.split = split
        self.classes = self._of_split[split]
        self._name = "emnist-" + split
        super().__init__(root, **kwargs)


class QMNIST(MNIST):
    """MNIST with its test set restored (Yadav & Bottou, 2019). ``what``: "train" or "test"."""

    _name = "qmnist"
    _generated = False

    def __init__(self, root: Any, what: Optional[str] = None, compat: bool = True, train: bool = True, **kwargs: Any) -> None:
        if what not in (None, "train", "test"):
            raise ValueError(f"Unknown value '{what}' for argument what. Valid values are ('train', 'test').")
        if not compat:
            raise NotImplementedError("QMNIST: only the class of each digit is read; leave compat=True")
        self.what = what or ("train" if train else "test")
        super().__init__(root, self.what == "train", **kwargs)

    def extra_repr(self) -> str:
        return f"Split: {self.what}"
