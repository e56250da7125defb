"""The Python end of the protocol that benchmarks/protocol.h describes."""

import ctypes
import gc
import json
import sys
import time


class Program:
    """Holds named rows, greets with their list and answers requests on standard input."""

    def __init__(self, side: str, version: str, threads: int):
        self.hello = {"side": side, "version": version, "threads": threads}
        self.rows = {}
        self.prepared = None
        self.body = None

    def add(self, name: str, unit: str, items: float, prepare) -> None:
        """prepare() allocates the row's data and returns the function that is timed."""
        self.rows[name] = (unit, items, prepare)

    def forget(self) -> None:
        self.prepared = self.body = None
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)

    def answer(self, name: str, fields) -> dict:
        """What fields(row) says, whose body it finds prepared."""
        if name not in self.rows:
            return {"name": name, "error": "no such row"}
        try:
            if self.prepared != name:
                self.forget()
                self.body = self.rows[name][2]()
                self.prepared = name
            return {"name": name, **fields(self.rows[name])}
        except Exception as error:  # pylint: disable=broad-except
            return {"name": name, "error": f"{type(error).__name__}: {error}"}

    def run(self, name: str, samples: int, min_seconds: float) -> dict:
        return self.answer(name, lambda row: {"unit": row[0], "items_per_iter": row[1],
                                              "seconds": measure(self.body, samples, min_seconds)})

    def memory(self, name: str, calls: int) -> dict:
        return self.answer(name, lambda row: {"live": live_bytes(self.body, calls)})

    def serve(self) -> None:
        print(json.dumps({**self.hello, "rows": list(self.rows)}), flush=True)
        for line in sys.stdin:
            words = line.split()
            if not words:
                continue
            if words[0] == "quit":
                break
            if words[0] == "forget":
                self.forget()
            elif words[0] == "run" and len(words) == 4:
                print(json.dumps(self.run(words[1], int(words[2]), float(words[3]))), flush=True)
            elif words[0] == "memory" and len(words) == 3:
                print(json.dumps(self.memory(words[1], int(words[2]))), flush=True)
            else:
                print(json.dumps({"error": f"unknown request {line.strip()}"}), flush=True)


def bytes_of_tensors() -> int:
    """Of every tensor that lives now, storages counted once. Gradients that Python has not seen yet count too."""
    import torch

    storages = {}
    gc.collect()
    for tensor in [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]:
        for t in (tensor, tensor.grad if tensor.is_leaf else None):
            if t is not None and t.layout == torch.strided:
                storage = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def live_bytes(body, calls: int) -> int:
    """The most bytes that tensors took at once during a call: what lived before it, and what its profile says."""
    import torch

    for _ in range(calls):
        body()
    now = most = bytes_of_tensors()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        body()
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def time_calls(body, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        body()
    return time.perf_counter() - start


def measure(body, samples: int, min_seconds: float) -> list:
    """Warms up for one call and about min_seconds, finding how many calls one sample takes, then samples."""
    body()
    calls = 1
    took = time_calls(body, calls)
    while took < min_seconds:
        calls = int(calls * min(10.0, max(1.5, min_seconds / max(took, 1e-9) * 1.1))) + 1
        took = time_calls(body, calls)
    return [time_calls(body, calls) / calls for _ in range(samples)]
