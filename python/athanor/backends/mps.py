"""Apple's devices are not supported."""


def is_available() -> bool:
    """Always false."""
    return False


def is_built() -> bool:
    """Always false."""
    return False
