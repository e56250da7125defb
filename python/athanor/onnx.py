"""ONNX files are not written: programs that import this run, those that export are told so."""

from __future__ import annotations

from typing import Any, NoReturn


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the library has no ONNX exporter. Save the state_dict and export it with PyTorch."""
    raise NotImplementedError("onnx.export: there is no ONNX exporter here; torch.load reads what athanor.save writes, so "
                              "save the state_dict and export it with PyTorch")


def is_in_onnx_export() -> bool:
    """Always false."""
    return False
