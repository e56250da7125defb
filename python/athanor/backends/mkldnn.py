"""oneDNN is behind convolutions and large products."""
import contextlib
from typing import Iterator

enabled = True
deterministic = False
allow_tf32 = True

def is_available() -> bool:
    """Always true."""
    return True


@contextlib.contextmanager
def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none"
) -> Iterator[None]:
    """Settings for a block; kept, and without effect."""
    given = {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32}
    before = {name: globals()[name] for name in given}
    globals().update(given)
    try:
        yield
    finally:
        globals().update(before)
