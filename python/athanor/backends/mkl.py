"""MKL is not used."""


def is_available() -> bool:
    """Always false."""
    return False
