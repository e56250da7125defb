"""Settings of cuDNN, which is not used."""
from typing import Optional

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
