"""Which names a pickle may hold: those that state_dicts, tensors and NumPy's arrays need, and nothing that runs code."""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any, Callable, Dict, List, Tuple

import athanor
from athanor import Tensor
from athanor._C import _io
from athanor._numpy_pickle import numpy_names
from athanor._weights_pickle import Callee, Machine, fill, malformed, ordered_dict

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


class _StorageType(Callee):
    __slots__ = ("dtype",)
    dtype: Any

    def __init__(self, dtype: Any) -> None:
        super().__init__("a storage type", _refuse_call)
        object.__setattr__(self, "dtype", dtype)


class LoadedStorage:
    """A storage that has been read, as what dtype and for which device."""

    __slots__ = ("base", "dtype", "device", "_checked")

    def __init__(self, base: Tensor, dtype: Any, device: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.device = device
        self._checked = dtype is not athanor.bool

    def check_bools(self) -> None:
        """A bool of another byte than 0 and 1 would be neither true nor false."""
        if not self._checked and (self.base > 1).any().item():
            raise RuntimeError("a storage of bools has other bytes than 0 and 1; the file is damaged")
        self._checked = True


def _rebuild_tensor(storage: Any, offset: int, sizes: tuple, strides: tuple, *rest: Any) -> Tensor:
    if not isinstance(storage, LoadedStorage) or not isinstance(sizes, tuple) or not isinstance(strides, tuple):
        raise malformed("a tensor without storage, sizes or strides")
    if len(sizes) > 64 or len(strides) != len(sizes):
        raise malformed(f"a tensor of {len(sizes)} dimensions and {len(strides)} strides")
    storage.check_bools()
    t = _io.share_storage(storage.base, storage.dtype, offset, list(sizes), list(strides))
    if storage.device is not None:
        t = t.to(storage.device)
    # What PyTorch keeps of a tensor beside its values: whether they are to be negated, or conjugated.
    kept = rest[2] if len(rest) > 2 else None
    if kept:
        if not isinstance(kept, dict) or kept.keys() - {"neg"}:
            raise pickle.UnpicklingError(f"a tensor with {sorted(map(str, kept))}; save its values: t.clone()")
        if t.numel() > storage.base.numel():  # an element that is seen many times
            raise malformed("a negated tensor larger than its storage")
        t = t.neg() if kept.get("neg") else t
    return t.requires_grad_() if rest and rest[0] is True else t


def _rebuild_tensor_v3(storage: Any, offset: int, sizes: tuple, strides: tuple, *rest: Any) -> Tensor:
    if not isinstance(storage, LoadedStorage) or len(rest) < 3 or not isinstance(rest[2], athanor.dtype):
        raise malformed("a tensor without a storage or a dtype")
    return _rebuild_tensor(LoadedStorage(storage.base, rest[2], storage.device), offset, sizes, strides, rest[0], None, *rest[3:])


def _rebuild_parameter(data: Tensor, requires_grad: bool, _: Any = None, state: Any = None) -> Tensor:
    from athanor.nn.parameter import Parameter

    if not isinstance(data, Tensor):
        raise malformed("a parameter without a tensor")
    p = Parameter(data.detach(), requires_grad)
    if state:
        _set_attributes(p, state)
    return p


def _refuse_call(*_: Any) -> Any:
    raise malformed("a type is called that only names something")


_TENSOR_TYPE, _PARAMETER_TYPE = Callee("torch.Tensor", _refuse_call), Callee("torch.nn.Parameter", _refuse_call)


def _rebuild_from_type(function: Any, kind: Any, args: tuple, state: Any) -> Any:
    if not isinstance(function, Callee) or not (kind is _TENSOR_TYPE or kind is _PARAMETER_TYPE):
        raise pickle.UnpicklingError("a tensor of a class of its own; save its values: t.detach()")
    t = function(*args) if function.name in _REBUILDERS and isinstance(args, tuple) else None
    if not isinstance(t, Tensor):
        raise malformed("a tensor that is made of something else")
    if kind is _PARAMETER_TYPE and type(t) is Tensor:
        t = _rebuild_parameter(t, t.requires_grad)
    if isinstance(state, dict):
        _set_attributes(t, state)
    return t


def _set_attributes(target: Any, state: Any) -> None:
    """Gives a tensor or OrderedDict attributes of the user's, which are none of its class."""
    if not isinstance(state, dict):
        raise malformed(f"a state for {type(target).__name__} that is no dict")
    for name in state:
        if not isinstance(name, str) or hasattr(type(target), name):
            raise malformed(f"a state that would hide {type(target).__name__}.{name}")
    target.__dict__.update(state)


def _set_state(target: Any, state: Any) -> None:
    # A state_dict keeps the versions of its modules as an attribute; nothing else has a state of its own.
    if type(target) is not collections.OrderedDict:
        raise malformed(f"a state for something that has none ({type(target).__name__})")
    _set_attributes(target, state)


def _encode(machine: Machine, text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise malformed(f"bytes in encoding {encoding!r}")
    machine.count_copied(len(text))
    return text.encode(encoding)


def _bytearray(machine: Machine, content: bytes = b"") -> bytearray:
    if not isinstance(content, bytes):  # a number would ask for that much memory
        raise malformed("a bytearray that is not made of bytes")
    machine.count_copied(len(content))
    return bytearray(content)


def _bytes() -> bytes:
    return b""


def _set_of(kind: type) -> Callable[..., Any]:
    def make(machine: Machine, items: Any = ()) -> Any:
        if not isinstance(items, (list, tuple)):
            raise malformed(f"a {kind.__name__} of something that is no list")
        return kind(machine.checked_keys(items))

    return make


def _counter(machine: Machine, counts: Any = ()) -> Any:
    made: Any = collections.Counter()
    fill(machine, made, counts)
    return made


def _default_dict(machine: Machine, factory: Any = None, pairs: Any = ()) -> Any:
    plain = [(None, None), *((kind, kind) for kind in _PLAIN_TYPES), *((v, k) for k, v in _FACTORIES.items())]
    kinds = [kind for named, kind in plain if named is factory]
    if not kinds:
        raise malformed("a defaultdict of values that are not plain")
    made: Any = collections.defaultdict(kinds[0])
    fill(machine, made, pairs)
    return made


def _complex(real: float, imag: float = 0.0) -> complex:
    if not isinstance(real, (int, float)) or not isinstance(imag, (int, float)):
        raise malformed("a complex number of something that is no number")
    return complex(real, imag)


def _size(machine: Machine, sizes: Any = ()) -> Any:
    if not isinstance(sizes, (tuple, list)):
        raise malformed("a size of something that is no tuple")
    machine.count_copied(len(sizes))
    return athanor.Size(sizes)


def _device(kind: str, index: Any = None) -> Any:
    if not isinstance(kind, str) or len(kind) > 64 or not (index is None or isinstance(index, int)):
        raise malformed("a device without a name")
    return athanor.device(kind) if index is None else athanor.device(kind, index)


# What defaultdicts are made of: types, and those that a pickle may call too.
_PLAIN_TYPES = (int, float, bool, str, list, dict, tuple)
_FACTORIES: Dict[Any, Callee] = {
    set: Callee("set", _set_of(set), counts=True),
    frozenset: Callee("frozenset", _set_of(frozenset), counts=True),
    complex: Callee("complex", _complex),
    bytearray: Callee("bytearray", _bytearray, counts=True),
    bytes: Callee("bytes", _bytes),
    collections.OrderedDict: Callee("OrderedDict", ordered_dict, counts=True),
}
_REBUILDERS = {
    "_rebuild_tensor": _rebuild_tensor,
    "_rebuild_tensor_v2": _rebuild_tensor,
    "_rebuild_tensor_v3": _rebuild_tensor_v3,
    "_rebuild_parameter": _rebuild_parameter,
    "_rebuild_parameter_with_state": _rebuild_parameter,
}


def _names_of_torch() -> Dict[Tuple[str, str], Any]:
    known: Dict[Tuple[str, str], Any] = {("torch._utils", name): Callee(name, f) for name, f in _REBUILDERS.items()}
    known["torch._tensor", "_rebuild_from_type_v2"] = Callee("_rebuild_from_type_v2", _rebuild_from_type)
    known["torch._tensor", "Tensor"] = known["torch", "Tensor"] = _TENSOR_TYPE
    known["torch.nn.parameter", "Parameter"] = _PARAMETER_TYPE
    known["torch", "device"] = Callee("torch.device", _device)
    for module in ("torch", "torch.storage"):
        known[module, "UntypedStorage"] = _StorageType(athanor.uint8)
    for storage, name in _DTYPES.items():
        known["torch", storage] = _StorageType(getattr(athanor, name))
        known["torch", name] = getattr(athanor, name)
    for alias, name in _ALIASES.items():
        known["torch", alias] = getattr(athanor, name)
    return known


def _known_names() -> Dict[Tuple[str, str], Any]:
    known = _names_of_torch()
    known.update(numpy_names())
    known["torch", "Size"] = Callee("torch.Size", _size, counts=True)
    known["_codecs", "encode"] = Callee("_codecs.encode", _encode, counts=True)
    known["collections", "OrderedDict"] = _FACTORIES[collections.OrderedDict]
    known["collections", "Counter"] = Callee("Counter", _counter, counts=True)
    known["collections", "defaultdict"] = Callee("defaultdict", _default_dict, counts=True)
    for module in ("builtins", "__builtin__"):
        for kind in (set, frozenset, complex, bytearray, bytes):
            known[module, kind.__name__] = _FACTORIES[kind]
        for kind in _PLAIN_TYPES:
            known[module, kind.__name__] = kind
    known["__builtin__", "long"], known["__builtin__", "unicode"] = int, str
    return known


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


_known: Dict[Tuple[str, str], Any] = {}


def _find_known(module: str, name: str) -> Any:
    if not _known:
        _known.update(_known_names())
    found = _known.get((module, name))
    if found is None:
        found = _safe.get((module, name))
    if found is not None:
        return found
    raise pickle.UnpicklingError(
        f"Weights only load failed: the file names {module[:200]}.{name[:200]}, which is none of the types that "
        "state_dicts need. If you trust the file, load(..., weights_only=False) may run any code that is in it; or "
        "name the class by athanor.serialization.add_safe_globals."
    )


def _is_safe(value: Any) -> bool:
    return any(value is safe for safe in _safe.values())


def _persistent_loader(storages: Callable[..., Any]) -> Callable[[Any], Any]:
    def load(pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], _StorageType)):
            raise malformed("an unknown kind of persistent object")
        _, kind, key, location, numel = pid[:5]
        if not (isinstance(key, str) and isinstance(location, str) and isinstance(numel, int) and numel >= 0):
            raise malformed("a storage without key, location or size")
        return storages(kind.dtype, key, location, numel)

    return load


class _Trusting(pickle.Unpickler):
    """Calls whatever the file names; what it names of PyTorch is this library's."""

    def __init__(self, file: Any, storages: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self.persistent_load = _persistent_loader(storages)  # type: ignore[method-assign]
        self._names = _names_of_torch()

    def find_class(self, module: str, name: str) -> Any:
        found = self._names.get((module, name))
        if found is None:
            found = _safe.get((module, name))
        if found is not None:
            return found
        if module.split(".")[0] == "torch":
            module = "athanor" + module[len("torch") :]
        return super().find_class(module, name)


def unpickle(content: bytes, storages: Callable[..., Any], trusted: bool, **kwargs: Any) -> Any:
    """What a pickle holds. ``storages`` makes a LoadedStorage of dtype, key, location and number of elements.

    Not trusted, it may name what state_dicts are made of and what add_safe_globals lets in, and runs nothing else.
    """
    if trusted:
        return _Trusting(io.BytesIO(content), storages, **kwargs).load()
    kwargs.pop("fix_imports", None)
    return Machine(content, _find_known, _is_safe, _set_state, _persistent_loader(storages), **kwargs).load()
