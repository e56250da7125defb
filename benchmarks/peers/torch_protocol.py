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

    def run(self, name: str, samples: int, min_seconds: float) -> dict:
        if name not in self.rows:
            return {"name": name, "error": "no such row"}
        unit, items, prepare = self.rows[name]
        try:
            if self.prepared != name:
                self.forget()
                self.body = prepare()
                self.prepared = name
            seconds = measure(self.body, samples, min_seconds)
        except Exception as error:  # pylint: disable=broad-except
            return {"name": name, "error": f"{type(error).__name__}: {error}"}
        return {"name": name, "unit": unit, "items_per_iter": items, "seconds": seconds}

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
            else:
                print(json.dumps({"error": f"unknown request {line.strip()}"}), flush=True)


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
