"""Samplers: in which order a dataset is gone through."""

from __future__ import annotations

import itertools
from typing import Any, Generic, Iterable, Iterator, List, Optional, Sequence, Sized, TypeVar, Union

import athanor

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base of samplers: a subclass defines ``__iter__``, which gives indices or lists of them, and maybe ``__len__``."""

    def __init__(self, data_source: Optional[Sized] = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …"""

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def _seeded(generator: Any) -> Any:
    """The generator to draw from: the one given, or a new one that the default generator seeds."""
    if generator is not None:
        return generator
    seed = int(athanor.empty((), dtype=athanor.int64).random_().item())
    generator = athanor.Generator()
    generator.manual_seed(seed)
    return generator


class RandomSampler(Sampler[int]):
    """A new random order every epoch.

    Args:
        data_source: what is sampled.
        replacement: draw each index anew.
        num_samples: number of indices; that of the examples unless given.
        generator: drawn from; without one each epoch takes a seed from the default generator.

    Raises:
        TypeError, ValueError: ``replacement`` is no bool, ``num_samples`` no positive integer.
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: Optional[int] = None, generator: Any = None
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices an epoch draws."""
        # The dataset's size may change between epochs.
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = _seeded(self.generator)
        left = self.num_samples
        if self.replacement:
            while left > 0:
                drawn = min(left, 4096)
                yield from athanor.randint(high=n, size=(drawn,), dtype=athanor.int64, generator=generator).tolist()
                left -= drawn
            return
        while left > 0:
            order = athanor.randperm(n, generator=generator).tolist()
            yield from order[:left] if left < n else order
            left -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a new random order every epoch."""

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in athanor.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """``num_samples`` indices, each in proportion to its weight.

    Args:
        weights: one for each index; they need not sum up to 1.
        num_samples: number of indices.
        replacement: whether an index may come twice.

    Raises:
        ValueError: weights of another form, ``num_samples`` no positive integer, ``replacement`` no bool.
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        _positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        tensor = athanor.as_tensor(weights, dtype=athanor.float64)
        if tensor.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(tensor.shape)}")
        self.weights = tensor
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = athanor.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[List[int]]):
    """Lists of ``batch_size`` indices of another sampler.

    Raises:
        ValueError: ``batch_size`` is no positive integer (7.5 and True are none), ``drop_last`` no bool.
    """

    def __init__(self, sampler: Union[Sampler[int], Iterable[int]], batch_size: int, drop_last: bool) -> None:
        _positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[List[int]]:
        indices = iter(self.sampler)
        while True:
            batch = list(itertools.islice(indices, self.batch_size))
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                return
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
