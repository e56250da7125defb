"""CUDA devices, with torch.cuda's names. There is no CUDA backend; with ATHANOR_CUDA_ON_CPU=N in the environment the
devices cuda:0 … cuda:N-1 are served by queues on the CPU, so that programs for GPUs run anywhere."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .. import _C
from .._C import OutOfMemoryError as OutOfMemoryError  # noqa: F401
from .._legacy import cuda_classes as _classes
from .streams import (  # noqa: F401
    Event as Event, Stream as Stream, StreamContext as StreamContext, current_stream as current_stream,
    default_stream as default_stream, set_stream as set_stream, stream as stream,
)

globals().update(_classes)
_core = getattr(_C, "_cuda", None)
_NO_DEVICE = (
    "Torch not compiled with CUDA enabled: there is no CUDA device here. ATHANOR_CUDA_ON_CPU=N in the environment has "
    "N of them served by the CPU"
)


def is_available() -> bool:
    """Whether there is a CUDA device."""
    return _core is not None and _core.is_available()


def device_count() -> int:
    """0 without devices."""
    return _core.device_count() if _core is not None else 0


def _needed() -> Any:
    if not is_available():
        raise AssertionError(_NO_DEVICE)
    return _core


def _index(device: Any) -> int:
    """The index that a device, a string, an index or None (the current one) stands for. ValueError for the host."""
    if device is None:
        return -1
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    d = _C.device(device)
    if d.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {d}")
    return -1 if d.index is None else d.index


def init() -> None:
    """Does nothing: devices are there when they are first used. AssertionError without any."""
    _needed()


def is_initialized() -> bool:
    """Whether devices could be used."""
    return is_available()


def get_device_name(device: Any = None) -> str:
    """What the device calls itself."""
    return _needed().get_device_name(_index(device))


def get_device_properties(device: Any = None) -> Any:
    """An object with name, total_memory in bytes, multi_processor_count, major and minor."""
    return _needed().get_device_properties(_index(device))


def get_device_capability(device: Any = None) -> Tuple[int, int]:
    """(0, 0): these devices have no compute capability."""
    _needed()
    return (0, 0)


def get_arch_list() -> List[str]:
    """Empty."""
    return []


def current_device() -> int:
    """The index of the device that "cuda" means in this thread."""
    return _needed().current_device()


def set_device(device: Any) -> None:
    """Makes "cuda" mean this device in this thread. Negative indices are ignored."""
    index = _index(device)
    if index >= 0:
        _needed().set_device(index)


class device:
    """`with cuda.device(1):` — the current device in the block; None and negative ones change nothing."""

    def __init__(self, device: Any):
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *_: Any) -> None:
        if self.idx >= 0:
            set_device(self.prev_idx)


class device_of(device):
    """`with cuda.device_of(tensor):` — its device in the block; nothing for a tensor on the host."""

    def __init__(self, obj: Any):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def synchronize(device: Any = None) -> None:
    """Waits for all work of the device, and raises what failed in it."""
    _needed().synchronize(_index(device))


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """True for two different devices: all memory is the host's."""
    _needed()
    return _index(device) != _index(peer_device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a device."""
    return is_available()


def is_tf32_supported() -> bool:
    """Always false."""
    return False


def empty_cache() -> None:
    """Gives memory that no tensor uses back to the system; nothing without devices."""
    if is_available():
        _core.empty_cache()


def ipc_collect() -> None:
    """Does nothing."""


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors on the device take; 0 without devices."""
    return _core.memory_allocated(_index(device)) if is_available() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most since the start, or the last reset_peak_memory_stats."""
    return _core.max_memory_allocated(_index(device)) if is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the device's pool holds, used or not."""
    return _core.memory_reserved(_index(device)) if is_available() else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most since the start, or the last reset_peak_memory_stats."""
    return _core.max_memory_reserved(_index(device)) if is_available() else 0


def memory_stats(device: Any = None) -> Dict[str, int]:
    """The same numbers under torch's keys; empty without devices."""
    return _core.memory_stats(_index(device)) if is_available() else {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The numbers as a text."""
    return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks begin anew."""
    if is_available():
        _core.reset_peak_memory_stats(_index(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def mem_get_info(device: Any = None) -> Tuple[int, int]:
    """(free, total) bytes."""
    return _needed().mem_get_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits the device to this part of its memory, in (0, 1]."""
    _needed().set_per_process_memory_fraction(fraction, _index(device))


def manual_seed(seed: int) -> None:
    """Seeds the generator, which all devices share with the host; nothing without devices."""
    if is_available():
        _C.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """As manual_seed."""
    manual_seed(seed)


def seed() -> None:
    """Seeds from the system's entropy."""
    if is_available():
        _C.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed the generator started from."""
    return _C.default_generator.initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The generator's state."""
    _needed()
    return _C.default_generator.get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Puts the generator into that state."""
    _needed()
    _C.default_generator.set_state(new_state)


def get_rng_state_all() -> List[Any]:
    """One per device."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """From get_rng_state_all."""
    for state in new_states:
        set_rng_state(state)


if TYPE_CHECKING:
    from . import amp as amp
else:

    def __getattr__(name: str) -> Any:
        if name == "amp":
            import importlib

            return importlib.import_module(f"{__name__}.amp")
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
