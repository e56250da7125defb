"""The DataLoader."""

from __future__ import annotations

import copy
import itertools
import os
import warnings
from typing import Any, Callable, Generic, Iterable, Iterator, List, Optional, TypeVar, Union

import athanor
from athanor.utils.data import _worker
from athanor.utils.data.collate import default_collate, default_convert
from athanor.utils.data.dataset import Dataset, IterableDataset, can_collate, collated
from athanor.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

T_co = TypeVar("T_co", covariant=True)

default_collate_fn = default_collate


class _InfiniteSampler(Sampler[None]):
    """For streams: as many requests as anybody asks for."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Batches of a dataset in the order of a sampler, made ahead by worker processes if asked to.

    Batches come in the sampler's order whatever the number of workers. Tensors come from workers through memory without
    a name: nothing is left behind when a process dies, and the size of /dev/shm does not matter. Datasets of this
    library that can gather whole batches (``TensorDataset``, ``vision.datasets.MNIST`` with ``ToTensor`` and
    ``Normalize``, subsets of them) do so in the program's own process, faster than workers would.

    Args:
        dataset: examples by index, or a stream.
        batch_size: examples in a batch; None gives them one by one, uncollated.
        shuffle: a new random order every epoch.
        sampler: gives indices instead.
        batch_sampler: gives lists of indices instead.
        num_workers: processes; 0 makes batches in the program's own.
        collate_fn: makes a batch of a list of examples.
        pin_memory, pin_memory_device: accepted; there is nothing to pin on the host.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a worker; 0 waits for ever.
        worker_init_fn: called in every worker with its number.
        multiprocessing_context: "fork", "spawn", "forkserver" or such a context; fork unless the program chose another.
        generator: draws the order and the workers' seeds.
        prefetch_factor: batches each worker makes ahead; 2 unless given.
        persistent_workers: keep workers for the next epoch.
        in_order: False hands out batches as they come.

    Raises:
        ValueError: arguments that exclude each other or are out of range; a batch size that is no positive integer.
        RuntimeError: while iterating: a worker died (its pid and exit code are named) or took too long.
    """

    dataset: Dataset[T_co]
    batch_size: Optional[int]
    num_workers: int
    sampler: Union[Sampler, Iterable]
    _iterator: Any = None
    _initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Union[Sampler, Iterable, None] = None,
        batch_sampler: Union[Sampler[list], Iterable[list], None] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._said_length: List[int] = []  # of a stream, once the program asked for it; one list for all copies
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            _check_stream(shuffle, sampler, batch_sampler)
        shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
            )
        if sampler is None:
            if self._iterable:
                sampler = _InfiniteSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._initialized = True

    _fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in self._fixed:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of multiprocessing, or the name of a start method. Raises ValueError
        without workers, or for a name that is none, TypeError for anything else."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            context = _context(context)
        self._multiprocessing_context = context

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _recipe(self) -> _worker.Recipe:
        return _worker.Recipe(self.dataset, self._iterable, self._auto_collation, self.collate_fn, self.drop_last)

    def _gathers(self) -> bool:
        """Whether the dataset itself makes whole batches, as good as ``collate_fn`` would."""
        return (
            self._auto_collation
            and self.collate_fn is default_collate
            and self.worker_init_fn is None
            and can_collate(self.dataset)
        )

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0 or self._gathers():
            return _SingleProcessIterator(self)
        from athanor.utils.data._processes import ProcessIterator

        self.check_worker_number_rationality()
        if not self.persistent_workers:
            return ProcessIterator(self)
        if self._iterator is None:
            # Of a copy: one that held this loader would end with it only when the garbage collector comes round.
            self._iterator = ProcessIterator(copy.copy(self))
        else:
            self._iterator.restart()
        return self._iterator

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        n = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is not None:
            n = n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        self._said_length[:] = [n]
        return n

    def check_worker_number_rationality(self) -> None:
        """Warns if there are more workers than processors for them."""
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if count is not None and self.num_workers > count:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of "
                f"worker in current system is {count}, which is smaller than what this DataLoader is going to create.",
                stacklevel=2,
            )


def _check_workers(num_workers: int, timeout: float, prefetch_factor: Optional[int], persistent: bool) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    if shuffle not in (False, None):
        raise ValueError(
            f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
        )
    if sampler is not None:
        raise ValueError(
            f"DataLoader with IterableDataset: expected unspecified sampler option, but got sampler={sampler}"
        )
    if batch_sampler is not None:
        raise ValueError(
            "DataLoader with IterableDataset: expected unspecified batch_sampler option, but got "
            f"batch_sampler={batch_sampler}"
        )


def _context(context: Any) -> Any:
    import multiprocessing
    from multiprocessing.context import BaseContext

    if isinstance(context, str):
        known = multiprocessing.get_all_start_methods()
        if context not in known:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{known!r}, but got multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if not isinstance(context, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={context}"
        )
    return context


class LoaderIterator:
    """Base of iterators: counts batches and warns of streams that are longer than they said."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._indices = iter(loader._index_sampler)
        self._given = 0

    def __iter__(self) -> "LoaderIterator":
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def _next(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        batch = self._next()
        self._given += 1
        said = self._loader._said_length
        if said and self._given > said[0]:
            text = (
                f"Length of IterableDataset {self._loader.dataset} was reported to be {said[0]} (when "
                f"accessing len(dataloader)), but {self._given} samples have been fetched. "
            )
            if self._loader.num_workers > 0:
                text += (
                    "For multiprocessing data-loading, this could be caused by not properly configuring the "
                    "IterableDataset replica at each worker."
                )
            warnings.warn(text, stacklevel=2)
        return batch


class _SingleProcessIterator(LoaderIterator):
    """Makes batches when they are asked for."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        # Drawn whatever the number of workers, so that the order does not depend on it.
        base_seed(loader)
        self._dataset = loader.dataset if loader._gathers() else None
        self._fetcher = loader._recipe().fetcher()

    def _next(self) -> Any:
        index = next(self._indices)
        if self._dataset is not None:
            batch = collated(self._dataset, index)
            if batch is not NotImplemented:
                return batch
        try:
            return self._fetcher.fetch(index)
        except Exception as e:
            # As worker processes say it; before Python 3.11 exceptions take no notes.
            if self._fetcher.failed_index is not None and hasattr(e, "add_note"):
                e.add_note(f"Dataset index: {self._fetcher.failed_index}")
            raise


def base_seed(loader: DataLoader) -> int:
    """A seed for an epoch's workers, from the loader's generator or the default one."""
    return int(athanor.empty((), dtype=athanor.int64).random_(generator=loader.generator).item())
