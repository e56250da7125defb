"""What a worker process does, and how what goes wrong there reaches the program."""

from __future__ import annotations

import os
import random
import sys
import traceback
from typing import Any, Callable, List, NamedTuple, Optional


class WorkerInfo:
    """What a worker process may know of itself: ``id``, ``num_workers``, ``seed``, ``dataset`` (its own copy)."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __init__(self, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"Cannot assign attributes to {type(self).__name__} objects")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.__dict__.items())})"


_worker_info: Optional[WorkerInfo] = None


def get_worker_info() -> Optional[WorkerInfo]:
    """In a worker process its :class:`WorkerInfo`, elsewhere None."""
    return _worker_info


class _KeyErrorMessage(str):
    """A text that KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception of another process: its class, and its traceback as a text."""

    def __init__(self, error: BaseException, where: str, index: Any = None) -> None:
        self.exc_type = type(error)
        self.where = where
        self.index = index
        self.exc_msg = "".join(traceback.format_exception(type(error), error, error.__traceback__))

    def reraise(self) -> None:
        """Raises an exception of the same class whose message names the worker, the index and the traceback."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\n"
        if self.index is not None:
            text += f"Dataset index: {self.index}\n"
        text += f"Original {self.exc_msg}"
        if self.exc_type is KeyError:
            text = _KeyErrorMessage(text)
        try:
            error = self.exc_type(text)
        except Exception:  # a class that wants other arguments
            raise RuntimeError(text) from None
        raise error


class Recipe(NamedTuple):
    """How batches are made of a dataset."""

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool

    def fetcher(self) -> "Fetcher":
        return IterableFetcher(self) if self.iterable else MapFetcher(self)


class Fetcher:
    """Makes batches; ``failed_index`` is where the dataset raised."""

    failed_index: Any = None

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def fetch(self, index: Any) -> Any:
        raise NotImplementedError


class MapFetcher(Fetcher):
    def fetch(self, index: Any) -> Any:
        recipe = self.recipe
        dataset = recipe.dataset
        if not recipe.auto_collation:
            return recipe.collate_fn(self._get(dataset, index))
        if getattr(dataset, "__getitems__", None):
            return recipe.collate_fn(dataset.__getitems__(index))
        i = None
        try:
            examples = []
            for i in index:
                examples.append(dataset[i])
        except BaseException:
            self.failed_index = i
            raise
        return recipe.collate_fn(examples)

    def _get(self, dataset: Any, index: Any) -> Any:
        try:
            return dataset[index]
        except BaseException:
            self.failed_index = index
            raise


class IterableFetcher(Fetcher):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._iterator = iter(recipe.dataset)
        self._ended = False

    def fetch(self, index: Any) -> Any:
        if self._ended:
            raise StopIteration
        recipe = self.recipe
        if not recipe.auto_collation:
            try:
                example = next(self._iterator)
            except StopIteration:
                self._ended = True
                raise
            return recipe.collate_fn(example)
        examples: List[Any] = []
        for _ in index:
            try:
                examples.append(next(self._iterator))
            except StopIteration:
                self._ended = True
                break
        if not examples or (recipe.drop_last and len(examples) < len(index)):
            raise StopIteration
        return recipe.collate_fn(examples)


class Setup(NamedTuple):
    """What a worker is told at its start."""

    recipe: Recipe
    seed: int
    worker_init_fn: Optional[Callable[[int], None]]
    worker_id: int
    num_workers: int
    parent: int


# Answers of a worker: (kind, number of the task, data).
BATCH, END_OF_STREAM, FAILED, RESUMED = range(4)


def _seed_everything(seed: int, base: int, worker_id: int) -> None:
    import athanor

    random.seed(seed)
    athanor.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(numpy.random.SeedSequence([worker_id, base]).generate_state(4))


def _watch(parent: int, sock: Any) -> Callable[[], bool]:
    """A function that waits for a message and is false once the parent is gone."""
    import select

    poll = select.poll()
    poll.register(sock, select.POLLIN)
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
        timeout = None
    except (AttributeError, OSError):  # an old kernel: look now and then
        timeout = 1000

    def wait() -> bool:
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(timeout)]
            if sock.fileno() in ready:
                return True
            if ready or os.getppid() != parent:
                return False

    return wait


def worker_main(setup: Setup, sock: Any, inherited: tuple) -> None:
    """Makes batches until the loader says that it is enough, or is gone. Closes ``inherited`` first."""
    import signal

    import athanor
    from athanor.utils.data._transport import Message, receive

    # Ctrl-C is the loader's to handle; it ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    for other in inherited:
        other.close()
    athanor.set_num_threads(1)
    seed = setup.seed + setup.worker_id
    _seed_everything(seed, setup.seed, setup.worker_id)
    global _worker_info
    _worker_info = WorkerInfo(
        id=setup.worker_id, num_workers=setup.num_workers, seed=seed, dataset=setup.recipe.dataset
    )
    where = f"in DataLoader worker process {setup.worker_id}"
    failure: Optional[ExceptionWrapper] = None
    fetcher: Optional[Fetcher] = None
    try:
        if setup.worker_init_fn is not None:
            setup.worker_init_fn(setup.worker_id)
        fetcher = setup.recipe.fetcher()
    except Exception as e:
        failure = ExceptionWrapper(e, where)

    def answer(kind: int, number: int, data: Any) -> None:
        try:
            message = Message((kind, number, data))
        except Exception as e:  # what cannot be pickled
            message = Message((FAILED, number, ExceptionWrapper(e, where)))
        message.send(sock)

    wait = _watch(setup.parent, sock)
    try:
        while wait():
            task = receive(sock)
            if task is None:
                return
            number, index = task
            if number is None:  # a new epoch
                failure = None
                try:
                    fetcher = setup.recipe.fetcher()
                except Exception as e:
                    failure = ExceptionWrapper(e, where)
                answer(RESUMED, -1, None)
                continue
            if failure is not None or fetcher is None:
                answer(FAILED, number, failure)
                continue
            fetcher.failed_index = None
            try:
                data = fetcher.fetch(index)
            except StopIteration as e:
                if setup.recipe.iterable:
                    answer(END_OF_STREAM, number, None)
                else:
                    answer(FAILED, number, ExceptionWrapper(e, where, fetcher.failed_index))
                continue
            except Exception as e:
                answer(FAILED, number, ExceptionWrapper(e, where, fetcher.failed_index))
                continue
            answer(BATCH, number, data)
            del data
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the loader is gone
