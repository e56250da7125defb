"""spawn: a function in several processes, and what is told when one fails."""
from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import traceback
from typing import Any, Callable, List, Optional, Tuple


class ProcessException(Exception):
    """A process failed: error_index is its number, pid its id."""

    __slots__ = ["error_index", "error_pid"]

    def __init__(self, msg: str, error_index: int, pid: int):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = self.error_pid = pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """Its function raised: the message holds the traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """It ended by a signal (signal_name) or with another status than 0 (exit_code)."""

    __slots__ = ["exit_code"]

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: Optional[str] = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _end_with_parent(parent: int) -> None:
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _main(fn: Callable, i: int, args: Tuple, failures: Any, parent: int, meeting: Tuple[str, str]) -> None:
    _end_with_parent(parent)
    os.environ.setdefault("MASTER_ADDR", meeting[0])
    os.environ.setdefault("MASTER_PORT", meeting[1])
    try:
        fn(i, *args)
    except (Exception, KeyboardInterrupt) as error:
        # An interrupt that the parent has too ends its join; one of this process alone is no success.
        failures.send_bytes(traceback.format_exc().encode(errors="replace"))
        failures.close()
        sys.exit(128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1)


class ProcessContext:
    """The processes of one start_processes."""

    def __init__(self, processes: List[Any], failures: List[Any]):
        self.processes = processes
        self._failures = failures
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> List[int]:
        """Their ids."""
        return [int(process.pid) for process in self.processes]

    def _end_others(self, grace_period: float) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(grace_period)
            if process.is_alive():
                process.kill()
                process.join()

    def join(self, timeout: Optional[float] = None, grace_period: Optional[float] = None) -> bool:
        """Waits until one or more have ended: true if all have, well. When one failed the others are ended (SIGTERM,
        after grace_period seconds SIGKILL) and ProcessRaisedException or ProcessExitedException says how."""
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)  # type: ignore[index]
            self.processes[index].join()
            # One that raised is the cause, however others ended at the same time.
            if self.processes[index].exitcode != 0 and (failed is None or self._failures[index].poll()):
                failed = index
        if failed is None:
            return not self.sentinels
        self._end_others(30 if grace_period is None else grace_period)
        self._raise(failed)
        return False

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        text = ""
        if self._failures[index].poll():
            try:
                text = self._failures[index].recv_bytes().decode()
            except EOFError:
                pass
        if text:
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}", index, process.pid)
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)


SpawnContext = ProcessContext


def _meeting() -> Tuple[str, str]:
    """Where the processes meet if the program does not say: this host, a port that is free now."""
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1", str(s.getsockname()[1])


def start_processes(fn: Callable, args: Tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> Optional[ProcessContext]:
    """fn(i, *args) in `nprocs` processes, i from 0. Waits for them unless join is off; then the ProcessContext is
    returned. MASTER_ADDR and MASTER_PORT, where they are not set, name this host and a free port in the processes.
    Raises ProcessRaisedException with the traceback, or ProcessExitedException, as soon as one fails; the others are
    ended then."""
    context = multiprocessing.get_context(start_method)
    processes, failures = [], []
    meeting = _meeting()
    for i in range(nprocs):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_main, args=(fn, i, args, writer, os.getpid(), meeting), daemon=daemon)
        process.start()
        writer.close()
        processes.append(process)
        failures.append(reader)
    result = ProcessContext(processes, failures)
    if not join:
        return result
    try:
        while not result.join():
            pass
    except KeyboardInterrupt:
        result._end_others(10)
        raise
    return None


def spawn(fn: Callable, args: Tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> Optional[ProcessContext]:
    """start_processes with new interpreters; `fn` must be importable, as the standard library says."""
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
