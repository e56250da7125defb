"""Athanor: deep learning with distributed training built in. `import athanor as torch` runs programs written for torch."""
from __future__ import annotations

from . import _C
# X as X: so type checkers know names of this package from what it uses itself.
from ._C import (  # noqa: F401
    Generator as Generator, OutOfMemoryError as OutOfMemoryError, Size as Size, Tensor as Tensor,
    bfloat16 as bfloat16, bool as bool, can_cast as can_cast, channels_last as channels_last,
    channels_last_3d as channels_last_3d, contiguous_format as contiguous_format,
    default_generator as default_generator, device as device, double as double, dtype as dtype, float as float,
    float16 as float16, float32 as float32, float64 as float64, from_numpy as from_numpy,
    get_default_dtype as get_default_dtype, get_num_interop_threads as get_num_interop_threads,
    get_num_threads as get_num_threads, half as half, int as int, int8 as int8, int16 as int16, int32 as int32,
    int64 as int64, is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
    is_anomaly_enabled as is_anomaly_enabled, is_autocast_enabled as is_autocast_enabled,
    get_autocast_dtype as get_autocast_dtype, is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled, layout as layout, long as long,
    manual_seed as manual_seed, memory_format as memory_format, preserve_format as preserve_format,
    promote_types as promote_types, set_num_interop_threads as set_num_interop_threads,
    set_num_threads as set_num_threads, short as short, strided as strided, tensor as tensor, uint8 as uint8,
    as_tensor as as_tensor,
)
from ._version import __version__ as __version__  # noqa: F401
from . import _tensor  # noqa: F401  attaches Python's methods to Tensor
from ._functions import *  # noqa: F401,F403
from ._composites import (  # noqa: F401
    corrcoef as corrcoef, cov as cov, frexp as frexp, gradient as gradient, histogram as histogram, histogramdd as histogramdd, i0 as i0, i0_ as i0_,
    mvlgamma as mvlgamma, nanquantile as nanquantile, nonzero_static as nonzero_static, poisson as poisson,
    quantile as quantile, unravel_index as unravel_index,
)
from ._legacy import (  # noqa: F401
    BFloat16Tensor as BFloat16Tensor, BoolTensor as BoolTensor, ByteTensor as ByteTensor, CharTensor as CharTensor,
    DoubleTensor as DoubleTensor, FloatTensor as FloatTensor, HalfTensor as HalfTensor, IntTensor as IntTensor,
    LongTensor as LongTensor, ShortTensor as ShortTensor,
)
from ._settings import (  # noqa: F401
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled, finfo as finfo,
    get_default_device as get_default_device, get_float32_matmul_precision as get_float32_matmul_precision,
    get_rng_state as get_rng_state, iinfo as iinfo, initial_seed as initial_seed,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled, seed as seed,
    set_default_device as set_default_device, set_default_dtype as set_default_dtype,
    set_default_tensor_type as set_default_tensor_type,
    set_float32_matmul_precision as set_float32_matmul_precision, set_flush_denormal as set_flush_denormal,
    set_printoptions as set_printoptions, set_rng_state as set_rng_state,
    get_deterministic_debug_mode as get_deterministic_debug_mode, is_warn_always_enabled as is_warn_always_enabled,
    set_deterministic_debug_mode as set_deterministic_debug_mode, set_warn_always as set_warn_always,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from . import autograd as autograd  # noqa: F401
from .autograd.grad_mode import (  # noqa: F401
    enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)

from math import e as e, inf as inf, nan as nan, pi as pi  # noqa: E402,F401
from typing import TYPE_CHECKING  # noqa: E402

newaxis = None

if TYPE_CHECKING:
    from . import (  # noqa: F401
        accelerator as accelerator, amp as amp, backends as backends, compiler as compiler, cpu as cpu, cuda as cuda,
        distributed as distributed, distributions as distributions, func as func, futures as futures, jit as jit, linalg as linalg,
        multiprocessing as multiprocessing, nn as nn, onnx as onnx, optim as optim, overrides as overrides, profiler as profiler, random as random, safetensors as safetensors,
        serialization as serialization, special as special, storage as storage, testing as testing, types as types, utils as utils,
        version as version, vision as vision, xpu as xpu,
    )
    from ._serialization import load as load, save as save  # noqa: F401
    from .amp import GradScaler as GradScaler, autocast as autocast  # noqa: F401
    from .storage import TypedStorage as TypedStorage, UntypedStorage as UntypedStorage  # noqa: F401
else:

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
