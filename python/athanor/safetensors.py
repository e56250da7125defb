"""The safetensors format, under the names of the package's torch module: load_file, save_file, load, save."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple, Union

from athanor import Tensor
from athanor._C import _io

Path = Union[str, "os.PathLike[str]"]


def load_file(filename: Path, device: Any = "cpu") -> Dict[str, Tensor]:
    """The tensors of a file by name. The file is mapped: values are read when they are touched.

    Raises:
        OSError: no such file, or a damaged one.
        TypeError: a dtype that this library lacks.
    """
    tensors, _ = _io.load_safetensors(os.fspath(filename), True)
    return {name: _place(t, device) for name, t in tensors}


def load_metadata(filename: Path) -> Dict[str, str]:
    """The texts that a file holds beside its tensors."""
    return _io.load_safetensors(os.fspath(filename), True)[1]


def load(data: bytes) -> Dict[str, Tensor]:
    """The same of a file's content."""
    tensors, _ = _io.parse_safetensors(data)
    return dict(tensors)


def save_file(tensors: Dict[str, Tensor], filename: Path, metadata: Optional[Dict[str, str]] = None) -> None:
    """Writes tensors under their names, atomically. Tensors that share memory are stored once each.

    Raises:
        ValueError: a value that is no tensor, or a name that the format does not have.
        OSError: the file cannot be written.
    """
    for text in (*tensors, *(metadata or {}).keys(), *(metadata or {}).values()):
        _check_utf8(text, filename)
    _io.save_safetensors(os.fspath(filename), _pairs(tensors), metadata or {})


def save(tensors: Dict[str, Tensor], metadata: Optional[Dict[str, str]] = None) -> bytes:
    """The same in memory."""
    return _io.safetensors_bytes(_pairs(tensors), metadata or {})


def _check_utf8(text: Any, filename: Any) -> None:
    try:
        if isinstance(text, str):
            text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{os.fspath(filename)!r}: the name or text {text!r} is not valid UTF-8") from None


def _place(t: Tensor, device: Any) -> Tensor:
    return t if str(device) == "cpu" else t.to(device)


def _pairs(tensors: Dict[str, Tensor]) -> List[Tuple[str, Tensor]]:
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected athanor.Tensor but received {type(t)}")
    return [(name, t.detach()) for name, t in tensors.items()]
