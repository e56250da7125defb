"""One call per module."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence


def parallel_apply(modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Optional[Sequence[Dict]] = None,
                   devices: Optional[Sequence[Any]] = None) -> List[Any]:
    """modules[i](*inputs[i], **kwargs_tup[i]) for all i. The devices' queues work at once; calls on them return before
    the work is done, so that one thread keeps all of them busy."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    results = []
    for i, (module, given) in enumerate(zip(modules, inputs)):
        args = given if isinstance(given, (list, tuple)) else (given,)
        try:
            results.append(module(*args, **(kwargs_tup[i] if kwargs_tup else {})))
        except Exception as error:
            where = f"in replica {i}" + (f" on device {devices[i]}" if devices else "")
            note = getattr(error, "add_note", None)
            if note is not None:
                note(f"({where})")
            raise
    return results
