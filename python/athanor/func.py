"""Modules as functions of their parameters. vmap, grad and their relatives are not here; see autograd.functional."""
from __future__ import annotations

from typing import Any, Optional

from .nn.utils import stateless as _stateless


def functional_call(module, parameter_and_buffer_dicts, args: Any = None, kwargs: Optional[dict] = None, *,
                    tie_weights: bool = True, strict: bool = False):
    """Calls the module with parameters and buffers of a dict in the place of its own: one dict, or several without a name in
    common. args: one argument or a tuple. Raises ValueError for a name in two of the dicts."""
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        given = {}
        for part in parameter_and_buffer_dicts:
            twice = sorted(given.keys() & part.keys())
            if twice:
                raise ValueError(f"{twice[0]} appears in multiple dictionaries; behavior of functional call is ambiguous")
            given.update(part)
    return _stateless.functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)
