"""Batches made by worker processes."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
import weakref
from collections import deque
from typing import Any, Deque, Dict, List, Tuple

from athanor.utils.data import _worker
from athanor.utils.data._transport import Message, channel, receive
from athanor.utils.data.dataloader import DataLoader, LoaderIterator, base_seed

_PATIENCE = 5.0  # seconds for a worker to end by itself


def _default_context() -> Any:
    """The program's start method if it chose one; else fork, which needs no main guard in scripts."""
    import multiprocessing

    return multiprocessing.get_context(multiprocessing.get_start_method(allow_none=True) or "fork")


def _ended(process: Any) -> str:
    """How a process ended, in words."""
    process.join(1.0)
    code = process.exitcode
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"killed by signal {-code} ({name})"


# The loaders' ends of all connections of this process.
_open: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


class _Worker:
    """A worker process as its loader sees it."""

    def __init__(self, context: Any, setup: _worker.Setup) -> None:
        self.sock, child = channel()
        _open.add(self.sock)
        # A forked child has all loaders' ends, too; it would keep them open.
        inherited = tuple(_open) if context.get_start_method() == "fork" else ()
        self.process = context.Process(target=_worker.worker_main, args=(setup, child, inherited), daemon=True)
        # A Ctrl-C that finds the child before it ignores Ctrl-C would end it with a traceback of its own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        except BaseException:
            self.sock.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            child.close()
        self.active = True  # has not come to the end of its stream
        self._waiting: Deque[Message] = deque()

    def send(self, obj: Any) -> None:
        """Never blocks: what does not fit is sent later."""
        self._waiting.append(Message(obj))
        self.flush()

    def flush(self) -> None:
        while self._waiting:
            try:
                self._waiting[0].send(self.sock, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                pass  # its end will be noticed by who waits for an answer
            self._waiting.popleft().close()


def _shut_down(workers: List[_Worker]) -> None:
    """Ends the processes: asked, then terminated, then killed."""
    for w in workers:
        w.send(None)
        w.sock.close()
    end = time.monotonic() + _PATIENCE
    for w in workers:
        w.process.join(max(end - time.monotonic(), 0.0))
    late = [w for w in workers if w.process.is_alive()]
    for w in late:
        w.process.terminate()
    for w in late:
        w.process.join(1.0)
        if w.process.is_alive():
            w.process.kill()
            w.process.join()
    workers.clear()


class ProcessIterator(LoaderIterator):
    """Hands tasks out to workers in turns and puts their batches in order."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._workers: List[_Worker] = []
        # Runs when the iterator is gone and at the interpreter's end, in the process that made the workers only.
        self._finalizer = weakref.finalize(self, _shut_down_here, os.getpid(), self._workers)
        context = loader.multiprocessing_context or _default_context()
        seed = base_seed(loader)
        for i in range(loader.num_workers):
            setup = _worker.Setup(
                loader._recipe(), seed, loader.worker_init_fn, i, loader.num_workers, os.getpid()
            )
            self._workers.append(_Worker(context, setup))
        self._begin()

    def _begin(self) -> None:
        self._sent = 0  # number of the next task
        self._received = 0  # number of the next batch to hand out
        self._owner: Dict[int, int] = {}  # tasks under way, by number: the worker
        self._done: Dict[int, Any] = {}  # answers that came early
        self._turn = 0
        self._exhausted = False
        for _ in range(max(self._loader.prefetch_factor or 0, 1) * len(self._workers)):
            self._give_task()

    def restart(self) -> None:
        """Begins a new epoch with the same workers."""
        if not self._workers:
            raise RuntimeError("the workers of this DataLoader have ended after an error; make a new DataLoader")
        base_seed(self._loader)
        for w in self._workers:
            w.active = True
            w.send((None, None))
        left = len(self._workers)
        while left:
            kind, _, _ = self._receive()
            left -= kind == _worker.RESUMED
        LoaderIterator.__init__(self, self._loader)
        self._begin()

    def _give_task(self) -> None:
        if self._exhausted:
            return
        for _ in self._workers:
            w = self._turn
            self._turn = (self._turn + 1) % len(self._workers)
            if self._workers[w].active:
                break
        else:
            return
        try:
            index = next(self._indices)
        except StopIteration:
            self._exhausted = True
            return
        self._owner[self._sent] = w
        self._workers[w].send((self._sent, index))
        self._sent += 1

    def _receive(self) -> Tuple[int, int, Any]:
        """The next answer of any worker."""
        timeout = self._loader.timeout
        end = time.monotonic() + timeout if timeout > 0 else None
        poll = select.poll()
        for w in self._workers:
            poll.register(w.sock, select.POLLIN | (select.POLLOUT if w._waiting else 0))
        by_descriptor = {w.sock.fileno(): w for w in self._workers}
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.0) * 1000
            ready = poll.poll(left)
            if not ready:
                self._fail(f"DataLoader timed out after {timeout} seconds")
            for descriptor, event in ready:
                w = by_descriptor[descriptor]
                if event & select.POLLOUT:
                    w.flush()
                    if not w._waiting:
                        poll.modify(w.sock, select.POLLIN)
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    try:
                        return receive(w.sock)
                    except EOFError:
                        pid = w.process.pid
                        how = _ended(w.process)
                        self._fail(f"DataLoader worker (pid(s) {pid}) exited unexpectedly: {how}")

    def _fail(self, text: str) -> None:
        self.close()
        raise RuntimeError(text)

    def _next(self) -> Any:
        while True:
            if not self._owner and not self._done:
                if not self._loader.persistent_workers:
                    self.close()
                raise StopIteration
            number = self._received if self._loader.in_order else next(iter(self._done), -1)
            if number in self._done:
                kind, data = self._done.pop(number)
                self._received += 1
                self._give_task()
                if kind == _worker.END_OF_STREAM:
                    continue
                if kind == _worker.FAILED:
                    data.reraise()
                return data
            kind, number, data = self._receive()
            if kind == _worker.RESUMED:
                continue
            w = self._owner.pop(number)
            self._done[number] = (kind, data)
            if kind == _worker.END_OF_STREAM:
                self._workers[w].active = False

    def close(self) -> None:
        """Ends the workers; the iterator gives nothing any more."""
        self._owner.clear()
        self._done.clear()
        self._exhausted = True
        _shut_down(self._workers)


def _shut_down_here(pid: int, workers: List[_Worker]) -> None:
    if os.getpid() == pid:
        _shut_down(workers)
