"""Datasets: sources of examples by index, or streams of them, and parts and sums of datasets.

A dataset here may have ``_collated(indices)``, which gives at once what collating the examples would give, or
``NotImplemented`` if it cannot. It counts only as long as no subclass says otherwise what an example is.
"""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from typing import Any, Dict, Generic, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

import athanor
from athanor import Tensor

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Examples by index: a subclass defines ``__getitem__``, and ``__len__`` for most samplers.

    With ``__getitems__(indices)`` it may fetch a batch's examples at once, as a list.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: "Dataset[T_co]") -> "ConcatDataset[T_co]":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of examples: a subclass defines ``__iter__``. Each worker process iterates over a copy of its own;
    ``get_worker_info`` tells a copy which one it is."""

    def __add__(self, other: Dataset[T_co]) -> "ChainDataset":  # type: ignore[override]
        return ChainDataset([self, other])


def collated(dataset: Any, indices: Sequence[Any]) -> Any:
    """``dataset._collated(indices)`` if it has one that speaks for its ``__getitem__``, else NotImplemented."""
    owner = _owner(dataset, "_collated")
    if owner is None or _owner(dataset, "__getitem__") is not owner:
        return NotImplemented
    return dataset._collated(indices)


def can_collate(dataset: Any) -> bool:
    """Whether ``dataset`` and those it is made of have such a method."""
    owner = _owner(dataset, "_collated")
    if owner is None or _owner(dataset, "__getitem__") is not owner:
        return False
    check = getattr(dataset, "_can_collate", None)
    return check is None or check()


def is_plain(indices: Any) -> bool:
    """Whether these are numbers in a list, of which samplers of one's own may give something else."""
    return type(indices) is list and set(map(type, indices)) == {int}


def _owner(dataset: Any, name: str) -> Optional[type]:
    for cls in type(dataset).__mro__:
        if name in cls.__dict__:
            return cls
    return None


class TensorDataset(Dataset[Tuple[Tensor, ...]]):
    """Examples are the entries of tensors along their first dimension.

    Raises:
        AssertionError: the tensors differ in their first sizes.
    """

    tensors: Tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensors[0].size(0) != t.size(0) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> Tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].size(0)

    def _collated(self, indices: Sequence[Any]) -> Any:
        if not is_plain(indices) or any(t.device.type != "cpu" for t in self.tensors):
            return NotImplemented
        chosen = athanor.tensor(indices, dtype=athanor.int64)
        return [t[chosen] for t in self.tensors]


class StackDataset(Dataset[Any]):
    """Examples are tuples, or dicts, of the examples of several datasets of one length.

    Raises:
        ValueError: datasets of different lengths, both forms at once, or none.
    """

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        if args and kwargs:
            raise ValueError("Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output, but both types are given.")
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        parts = args or tuple(kwargs.values())
        self._length = len(parts[0])  # type: ignore[arg-type]
        if any(len(d) != self._length for d in parts):  # type: ignore[arg-type]
            raise ValueError("Size mismatch between datasets")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {key: d[index] for key, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: Sequence[Any]) -> List[Any]:
        named = isinstance(self.datasets, dict)
        parts = list(self.datasets.values()) if named else list(self.datasets)
        columns = []
        for dataset in parts:
            if callable(getattr(dataset, "__getitems__", None)):
                column = dataset.__getitems__(indices)
                if len(column) != len(indices):
                    raise ValueError(
                        f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}"
                    )
            else:
                column = [dataset[i] for i in indices]
            columns.append(column)
        if named:
            return [dict(zip(self.datasets, row)) for row in zip(*columns)]
        return list(zip(*columns))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Several datasets one after the other.

    Raises:
        AssertionError: no datasets, or a stream among them.
    """

    datasets: List[Dataset[T_co]]
    cumulative_sizes: List[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> List[int]:
        """Where each dataset of the sequence ends, counted over all of them."""
        return list(itertools.accumulate(len(e) for e in sequence))

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if len(self.datasets) == 0:
            raise AssertionError("datasets should not be an empty iterable")
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        part = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[part - 1] if part else 0
        return self.datasets[part][index - before]


class ChainDataset(IterableDataset):
    """Several streams one after the other."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from d

    def __len__(self) -> int:
        total = 0
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            total += len(d)  # type: ignore[arg-type]
        return total


class Subset(Dataset[T_co]):
    """The examples of ``dataset`` at ``indices``."""

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: List[int]) -> List[T_co]:
        chosen = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(chosen)  # type: ignore[attr-defined]
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)

    def _can_collate(self) -> bool:
        return can_collate(self.dataset)

    def _collated(self, indices: Sequence[int]) -> Any:
        own = self.indices
        return collated(self.dataset, [own[i] for i in indices])


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[Union[int, float]], generator: Any = None
) -> List[Subset[T_co]]:
    """Subsets of a random order of ``dataset``, of the given lengths, or of shares that sum up to 1.

    What rounding the shares down leaves over goes to the first subsets, one example each.

    Raises:
        ValueError: the lengths do not add up to that of the dataset.
    """
    size = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = []
        for i, share in enumerate(lengths):
            if share < 0 or share > 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
            sizes.append(math.floor(size * share))
        for i in range(size - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, n in enumerate(sizes):
            if n == 0:
                warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2)
        lengths = sizes
    if sum(lengths) != size:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = athanor.randperm(size, generator=generator).tolist()
    ends = list(itertools.accumulate(int(n) for n in lengths))
    return [Subset(dataset, order[end - int(n) : end]) for end, n in zip(ends, lengths)]
