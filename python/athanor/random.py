"""The default generator: seeds and states."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import athanor
from athanor import Generator, Tensor

default_generator: Generator = athanor.default_generator


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator, and those of all devices, and returns it."""
    return athanor.manual_seed(int(seed))


def seed() -> int:
    """Seeds the default generator from the system's entropy and returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Puts the default generator into a state that :func:`get_rng_state` gave."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, _caller: str = "fork_rng",
             _devices_kw: str = "devices", device_type: str = "cuda") -> Iterator[None]:
    """Restores the default generator's state when the block ends."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
