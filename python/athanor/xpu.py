"""torch.xpu, for programs that ask whether it is there: it is not."""


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0
