"""Athanor: deep learning with distributed training built in. `import athanor as torch` runs programs written for torch."""
from __future__ import annotations

from . import _C
from ._C import (  # noqa: F401
    Generator, OutOfMemoryError, Size, Tensor, bfloat16, bool, can_cast, channels_last, channels_last_3d,
    contiguous_format, default_generator, device, double, dtype, float, float16, float32, float64, from_numpy,
    get_default_dtype, get_num_interop_threads, get_num_threads, half, int, int8, int16, int32, int64, is_anomaly_check_nan_enabled,
    is_anomaly_enabled, is_autocast_enabled, get_autocast_dtype, is_grad_enabled, is_inference_mode_enabled, layout, long, manual_seed, memory_format,
    preserve_format, promote_types, set_num_interop_threads, set_num_threads, short, strided, tensor, uint8, as_tensor,
)
from ._version import __version__  # noqa: F401
from . import _tensor  # noqa: F401  attaches Python's methods to Tensor
from ._functions import *  # noqa: F401,F403
from ._legacy import (  # noqa: F401
    BFloat16Tensor, BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor, HalfTensor, IntTensor, LongTensor,
    ShortTensor,
)
from ._settings import (  # noqa: F401
    are_deterministic_algorithms_enabled, finfo, get_default_device, get_float32_matmul_precision, get_rng_state, iinfo, initial_seed,
    is_deterministic_algorithms_warn_only_enabled, seed, set_default_device, set_default_dtype, set_default_tensor_type,
    set_float32_matmul_precision, set_flush_denormal, set_printoptions, set_rng_state, use_deterministic_algorithms,
)
from . import autograd  # noqa: F401
from .autograd.grad_mode import (  # noqa: F401
    enable_grad, inference_mode, no_grad, set_grad_enabled,
)

from math import e, inf, nan, pi  # noqa: E402,F401

newaxis = None

def __getattr__(name: str):
    """Subpackages are loaded when they are first used: `import athanor` stays quick."""
    if not name.startswith("_"):
        import importlib
        import importlib.util

        full = f"{__name__}.{name}"
        if importlib.util.find_spec(full) is not None:
            return importlib.import_module(full)
    if name in ("autocast", "GradScaler"):
        from . import amp

        return getattr(amp, name)
    if name in ("UntypedStorage", "TypedStorage"):
        from . import storage

        return getattr(storage, name)
    if name in ("save", "load"):
        from . import _serialization

        globals()["save"], globals()["load"] = _serialization.save, _serialization.load
        return globals()[name]
    raise AttributeError(f"module 'athanor' has no attribute '{name}'")
