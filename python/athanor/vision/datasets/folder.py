"""Folders of files as datasets, one folder for each class."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from athanor.vision.datasets.vision import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
Extensions = Union[str, Tuple[str, ...]]


def has_file_allowed_extension(filename: str, extensions: Extensions) -> bool:
    """Whether the name ends in one of them, in any case."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory: Union[str, "os.PathLike[str]"]) -> Tuple[List[str], Dict[str, int]]:
    """The folders in ``directory`` by name, and their numbers. Raises FileNotFoundError if there are none."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: Union[str, "os.PathLike[str]"],
    class_to_idx: Optional[Dict[str, int]] = None,
    extensions: Optional[Extensions] = None,
    is_valid_file: Optional[Callable[[str], bool]] = None,
    allow_empty: bool = False,
) -> List[Tuple[str, int]]:
    """Paths and classes of the files in and below the folders of the classes, sorted.

    Raises:
        ValueError: neither or both of ``extensions`` and ``is_valid_file``, or no classes.
        FileNotFoundError: a class without files, unless ``allow_empty``.
    """
    directory = os.path.expanduser(directory)
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    elif not class_to_idx:
        raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    valid = is_valid_file or (lambda path: has_file_allowed_extension(path, extensions))  # type: ignore[arg-type]
    examples = []
    empty = set(class_to_idx)
    for name in sorted(class_to_idx):
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if valid(path):
                    examples.append((path, class_to_idx[name]))
                    empty.discard(name)
    if empty and not allow_empty:
        text = f"Found no valid file for the classes {', '.join(sorted(empty))}. "
        if extensions is not None:
            text += "Supported extensions are: "
            text += extensions if isinstance(extensions, str) else ", ".join(extensions)
        raise FileNotFoundError(text)
    return examples


class DatasetFolder(VisionDataset):
    """Files in folders, one folder for each class; examples are (what ``loader`` makes of the file, class)."""

    def __init__(
        self,
        root: Any,
        loader: Callable[[str], Any],
        extensions: Optional[Tuple[str, ...]] = None,
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
        is_valid_file: Optional[Callable[[str], bool]] = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(os.fspath(root), transform=transform, target_transform=target_transform)
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.loader = loader
        self.extensions = extensions
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(
        directory: Any,
        class_to_idx: Dict[str, int],
        extensions: Optional[Tuple[str, ...]] = None,
        is_valid_file: Optional[Callable[[str], bool]] = None,
        allow_empty: bool = False,
    ) -> List[Tuple[str, int]]:
        """(path, class number) of every file; see the function of this name."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory: Any) -> Tuple[List[str], Dict[str, int]]:
        """The names of the classes, and their numbers by name; for subclasses to replace."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> Tuple[Any, Any]:
        path, target = self.samples[index]
        example = self.loader(path)
        if self.transform is not None:
            example = self.transform(example)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return example, target

    def __len__(self) -> int:
        return len(self.samples)


def default_loader(path: str) -> Any:
    """The image of a file in RGB: PIL's, or where PIL is not installed, bytes (3, height, width)."""
    try:
        from PIL import Image
    except ImportError:
        from athanor._C import _data

        return _data.decode_image(path, "RGB")
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


class ImageFolder(DatasetFolder):
    """Images in folders, one folder for each class, in and below it; examples are (image, class)."""

    def __init__(
        self,
        root: Any,
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Optional[Callable[[str], bool]] = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
