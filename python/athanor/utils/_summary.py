"""A table of a module."""

from __future__ import annotations

from typing import Any, Dict, List

import athanor
from athanor import Tensor


def _shape_of(result: Any) -> str:
    if isinstance(result, Tensor):
        return str(list(result.shape))
    return ", ".join(_shape_of(r) for r in result) if isinstance(result, (list, tuple)) else ""


def _table(rows: List[List[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([c.ljust(w) for c, w in zip(row[:-1], widths)] + [row[-1].rjust(widths[-1])]) for row in rows]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths)] + lines[1:]) + "\n"


def summary(model: Any, *inputs: Any, **keywords: Any) -> str:
    """One line per module with its path, class and own parameters, then the totals: parameters, those that train, buffers,
    bytes. A parameter that is shared counts where it is met first. With inputs the model is called on them once, without
    gradients, and the shape of each module's result is shown."""
    shapes: Dict[int, str] = {}
    runs = bool(inputs or keywords)
    if runs:
        def note(module: Any, _: Any, result: Any) -> None:
            shapes[id(module)] = _shape_of(result)

        handles = [m.register_forward_hook(note) for m in model.modules()]
        try:
            with athanor.no_grad():
                model(*inputs, **keywords)
        finally:
            for handle in handles:
                handle.remove()
    rows = [["Module", "Class"] + (["Result"] if runs else []) + ["Parameters"]]
    counted: set = set()
    total = training = size = 0
    for path, module in model.named_modules():
        own = 0
        for p in module.parameters(recurse=False):
            if id(p) in counted:
                continue
            counted.add(id(p))
            own += p.numel()
            training += p.numel() if p.requires_grad else 0
            size += p.numel() * p.element_size()
        total += own
        rows.append([path or "(model)", type(module).__name__] + ([shapes.get(id(module), "")] if runs else [])
                    + [f"{own:,}" if own else ""])
    buffers = sum(b.numel() for b in model.buffers())
    size += sum(b.numel() * b.element_size() for b in model.buffers())
    return _table(rows) + f"\nParameters: {total:,}, training: {training:,}, buffers: {buffers:,}, bytes: {size:,}\n"
