"""Which names a pickle may hold: those that state_dicts, tensors and NumPy's arrays need, and nothing that runs code."""

from __future__ import annotations

import collections
import pickle
from typing import Any, Callable, Dict, List, Tuple

import athanor
from athanor import Tensor
from athanor._C import _io

STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
_DTYPES = {storage: name for name, storage in STORAGES.items()}
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}
_ALIASES.update(short="int16")


class _Callee:
    """A function that a pickle may call. Pickles can set attributes of what they name; here they cannot."""

    __slots__ = ("_call",)
    _call: Callable

    def __init__(self, call: Callable) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("a pickle tries to change a function of the program")

    def __setstate__(self, _: Any) -> None:
        raise pickle.UnpicklingError("a pickle tries to change a function of the program")


class _StorageType(_Callee):
    __slots__ = ("dtype",)
    dtype: Any

    def __init__(self, dtype: Any) -> None:
        super().__init__(_refuse_call)
        object.__setattr__(self, "dtype", dtype)


def _refuse_call(*_: Any) -> Any:
    raise pickle.UnpicklingError("malformed pickle: a type is called that only names something")


class LoadedStorage:
    """A storage that has been read, as what dtype and for which device."""

    __slots__ = ("base", "dtype", "device")

    def __init__(self, base: Tensor, dtype: Any, device: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.device = device


def _rebuild_tensor(storage: Any, offset: int, sizes: tuple, strides: tuple, *rest: Any) -> Tensor:
    if not isinstance(storage, LoadedStorage):
        raise pickle.UnpicklingError("malformed pickle: a tensor without a storage")
    t = _io.share_storage(storage.base, storage.dtype, offset, list(sizes), list(strides))
    if storage.device is not None:
        t = t.to(storage.device)
    # What PyTorch keeps of a tensor beside its values: whether they are to be negated, or conjugated.
    kept = rest[2] if len(rest) > 2 else None
    if kept:
        if not isinstance(kept, dict) or kept.keys() - {"neg"}:
            raise pickle.UnpicklingError(f"a tensor with {sorted(map(str, kept))}; save its values: t.clone()")
        t = t.neg() if kept.get("neg") else t
    return t.requires_grad_() if rest and rest[0] is True else t


def _rebuild_tensor_v3(storage: Any, offset: int, sizes: tuple, strides: tuple, *rest: Any) -> Tensor:
    if not isinstance(storage, LoadedStorage) or len(rest) < 3 or not isinstance(rest[2], athanor.dtype):
        raise pickle.UnpicklingError("malformed pickle: a tensor without a storage or a dtype")
    return _rebuild_tensor(LoadedStorage(storage.base, rest[2], storage.device), offset, sizes, strides, rest[0], None, *rest[3:])


def _rebuild_parameter(data: Tensor, requires_grad: bool, *_: Any) -> Tensor:
    from athanor.nn.parameter import Parameter

    return Parameter(data.detach(), requires_grad)


_TENSOR_TYPE, _PARAMETER_TYPE = _Callee(_refuse_call), _Callee(_refuse_call)


def _rebuild_from_type(function: Any, kind: Any, args: tuple, state: Any) -> Any:
    if not isinstance(function, _Callee) or not (kind is _TENSOR_TYPE or kind is _PARAMETER_TYPE):
        raise pickle.UnpicklingError("a tensor of a class of its own; save its values: t.detach()")
    t = function(*args)
    if kind is _PARAMETER_TYPE and type(t) is Tensor:
        t = _rebuild_parameter(t, t.requires_grad)
    if isinstance(state, dict):
        t.__dict__.update(state)
    return t


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"malformed pickle: bytes in encoding {encoding!r}")
    return text.encode(encoding)


def _bytearray(content: bytes = b"") -> bytearray:
    if not isinstance(content, bytes):  # a number would ask for that much memory
        raise pickle.UnpicklingError("malformed pickle: a bytearray that is not made of bytes")
    return bytearray(content)


def _known_names() -> Dict[Tuple[str, str], Any]:
    known: Dict[Tuple[str, str], Any] = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("collections", "Counter"): _Callee(collections.Counter),
        ("collections", "defaultdict"): collections.defaultdict,
        ("_codecs", "encode"): _Callee(_encode),
        ("torch._utils", "_rebuild_tensor"): _Callee(_rebuild_tensor),
        ("torch._utils", "_rebuild_tensor_v2"): _Callee(_rebuild_tensor),
        ("torch._utils", "_rebuild_tensor_v3"): _Callee(_rebuild_tensor_v3),
        ("torch._utils", "_rebuild_parameter"): _Callee(_rebuild_parameter),
        ("torch._utils", "_rebuild_parameter_with_state"): _Callee(_rebuild_parameter),
        ("torch._tensor", "_rebuild_from_type_v2"): _Callee(_rebuild_from_type),
        ("torch._tensor", "Tensor"): _TENSOR_TYPE,
        ("torch", "Tensor"): _TENSOR_TYPE,
        ("torch.nn.parameter", "Parameter"): _PARAMETER_TYPE,
        ("torch", "Size"): _Callee(athanor.Size),
        ("torch", "device"): _Callee(athanor.device),
        ("torch.storage", "UntypedStorage"): _StorageType(athanor.uint8),
        ("torch", "UntypedStorage"): _StorageType(athanor.uint8),
    }
    for module in ("builtins", "__builtin__"):
        known[module, "bytearray"] = _Callee(_bytearray)
        for function in (set, frozenset, complex):
            known[module, function.__name__] = _Callee(function)
        # What defaultdicts are made of.
        for kind in (int, float, bool, str, list, dict, tuple):
            known[module, kind.__name__] = kind
    for storage, name in _DTYPES.items():
        known["torch", storage] = _StorageType(getattr(athanor, name))
        known["torch", name] = getattr(athanor, name)
    for alias, name in _ALIASES.items():
        known["torch", alias] = getattr(athanor, name)
    return known


def _numpy_name(module: str, name: str) -> Any:
    """What a pickled array needs of NumPy; None if it is something else, or NumPy is not there."""
    if module not in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray"):
        return None
    try:
        import numpy
    except ImportError:
        return None
    if module == "numpy":
        return getattr(numpy, name) if name in ("ndarray", "dtype") else None
    core = getattr(numpy, "_core", None) or numpy.core
    return getattr(core.multiarray, name) if name in ("_reconstruct", "scalar") else None


_safe: Dict[Tuple[str, str], Any] = {}


def add_safe_globals(safe_globals: List[Any]) -> None:
    """Has :func:`load` accept these classes and functions, or ``(object, "module.name")`` pairs."""
    for entry in safe_globals:
        if isinstance(entry, tuple):
            obj, path = entry
            module, _, name = path.rpartition(".")
            _safe[module, name] = obj
        else:
            _safe[entry.__module__, entry.__qualname__] = entry


def clear_safe_globals() -> None:
    """Forgets what :func:`add_safe_globals` added."""
    _safe.clear()


def get_safe_globals() -> List[Any]:
    """What :func:`add_safe_globals` added."""
    return list(_safe.values())


class safe_globals:  # noqa: N801  PyTorch's name
    """``with safe_globals([Class]):`` adds for the block."""

    def __init__(self, safe_globals: List[Any]) -> None:
        self._added = safe_globals

    def __enter__(self) -> None:
        self._before = dict(_safe)
        add_safe_globals(self._added)

    def __exit__(self, *_: Any) -> None:
        _safe.clear()
        _safe.update(self._before)


class Unpickler(pickle.Unpickler):
    _known: Dict[Tuple[str, str], Any] = {}

    def __init__(self, file: Any, storages: Callable[..., Any], trusted: bool, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self._storages = storages
        self._trusted = trusted
        if not self._known:
            Unpickler._known = _known_names()

    def find_class(self, module: str, name: str) -> Any:
        found = self._known.get((module, name))
        if found is None:
            found = _safe.get((module, name))
        if found is None:
            found = _numpy_name(module, name)
        if found is not None:
            return found
        if self._trusted:
            if module.split(".")[0] == "torch":
                module = "athanor" + module[len("torch") :]
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"Weights only load failed: the file names {module}.{name}, which is none of the types that state_dicts "
            "need. If you trust the file, load(..., weights_only=False) may run any code that is in it; or name "
            "the class by athanor.serialization.add_safe_globals."
        )

    def persistent_load(self, pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], _StorageType)):
            raise pickle.UnpicklingError("malformed pickle: an unknown kind of persistent object")
        return self._storages(pid[1].dtype, pid[2], pid[3], pid[4])
