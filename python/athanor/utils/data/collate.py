"""Lists of examples to batches."""

from __future__ import annotations

import collections.abc
import copy
from typing import Any, Callable, Dict, Optional, Union

import athanor
from athanor import Tensor

_ERROR = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_convert(data: Any) -> Any:
    """NumPy's arrays to tensors, in containers of any depth; what is neither stays as it is."""
    if isinstance(data, Tensor):
        return data
    module = type(data).__module__
    if module == "numpy":
        if isinstance(data, (str, bytes)) or type(data).__name__ in ("ndarray", "memmap") and data.dtype.kind in "SaUO":
            return data
        return athanor.tensor(data) if data.shape == () else athanor.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        converted = {key: default_convert(value) for key, value in data.items()}
        return _like(data, converted)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        try:
            return type(data)([default_convert(d) for d in data])  # type: ignore[call-arg]
        except TypeError:
            return [default_convert(d) for d in data]
    return data


def _like(original: collections.abc.Mapping, content: Dict[Any, Any]) -> Any:
    """A mapping of ``original``'s type with ``content``, or a dict if it cannot be made."""
    if type(original) is dict:
        return content
    try:
        if isinstance(original, collections.abc.MutableMapping):
            clone = copy.copy(original)
            clone.update(content)
            return clone
        return type(original)(content)  # type: ignore[call-arg]
    except TypeError:
        return content


def collate(batch: Any, *, collate_fn_map: Optional[Dict[Union[type, tuple], Callable]] = None) -> Any:
    """``default_collate`` with functions of one's own: ``f(batch, collate_fn_map=…)`` for the type of the elements."""
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        f = collate_fn_map.get(kind)
        if f is not None:
            return f(batch, collate_fn_map=collate_fn_map)
        for known, f in collate_fn_map.items():
            if isinstance(first, known):
                return f(batch, collate_fn_map=collate_fn_map)
    if kind.__module__ == "numpy" and not isinstance(first, (str, bytes)):
        return _collate_numpy(batch, first)
    if isinstance(first, collections.abc.Mapping):
        content = {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first}
        return _like(first, content)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        return _collate_sequences(batch, first, collate_fn_map)
    raise TypeError(_ERROR.format(kind))


def _collate_sequences(batch: Any, first: Any, collate_fn_map: Any) -> Any:
    size = len(first)
    if any(len(e) != size for e in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
    if isinstance(first, (tuple, list)) and type(first) in (tuple, list):
        return columns
    try:
        return type(first)(columns)
    except TypeError:
        return columns


def _collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return athanor.stack(batch, 0)


def _collate_floats(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return athanor.tensor(batch, dtype=athanor.float64)


def _collate_numbers(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return athanor.tensor(batch)


def _collate_texts(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


def _collate_numpy(batch: Any, first: Any) -> Any:
    if type(first).__name__ in ("ndarray", "memmap"):
        if first.dtype.kind in "SaUO":
            raise TypeError(_ERROR.format(first.dtype))
        return athanor.stack([athanor.as_tensor(b) for b in batch], 0)
    if first.shape == ():  # a NumPy scalar
        import numpy

        return athanor.from_numpy(numpy.array(batch, dtype=first.dtype))
    raise TypeError(_ERROR.format(type(first)))


default_collate_fn_map: Dict[Union[type, tuple], Callable] = {
    Tensor: _collate_tensors,
    float: _collate_floats,
    int: _collate_numbers,
    str: _collate_texts,
    bytes: _collate_texts,
}


def default_collate(batch: Any) -> Any:
    """Examples to a batch: tensors and NumPy's arrays are stacked, numbers become a tensor, texts stay what they came in, mappings
    and sequences are collated entry by entry.

    Raises:
        TypeError: elements of another type.
        RuntimeError: sequences of different lengths, tensors of different shapes.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
