"""Settings of cuDNN, which is not used."""
from __future__ import annotations

import contextlib
from typing import Iterator, Optional

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True
benchmark_limit = 10


def is_available() -> bool:
    """Always false."""
    return False


def version() -> Optional[int]:
    """None: there is no cuDNN."""
    return None


@contextlib.contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
    allow_tf32: bool = True, fp32_precision: str = "none",
) -> Iterator[None]:
    """Settings for a block; as all of them, kept and without effect."""
    given = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
             "deterministic": deterministic, "allow_tf32": allow_tf32}
    before = {name: globals()[name] for name in given}
    globals().update(given)
    try:
        yield
    finally:
        globals().update(before)
