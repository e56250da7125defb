"""The old names of tensor types: torch.FloatTensor(2, 3), tensor.type() == "torch.FloatTensor"."""
from __future__ import annotations

from . import _C
from ._C import Tensor

_NAMES = {
    "Float": _C.float32, "Double": _C.float64, "Half": _C.float16, "BFloat16": _C.bfloat16, "Long": _C.int64,
    "Int": _C.int32, "Short": _C.int16, "Char": _C.int8, "Byte": _C.uint8, "Bool": _C.bool,
}


class _LegacyType(type):
    """isinstance(t, torch.FloatTensor) asks for dtype and device."""

    dtype: _C.dtype
    is_cuda: bool

    def __instancecheck__(cls, obj) -> bool:
        return isinstance(obj, Tensor) and obj.dtype is cls.dtype and obj.is_cuda == cls.is_cuda

    def __call__(cls, *args, **keywords):
        device = keywords.pop("device", "cuda" if cls.is_cuda else None)
        if keywords:
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument '{next(iter(keywords))}'")
        if len(args) == 1 and isinstance(args[0], Tensor):
            if args[0].dtype is not cls.dtype:
                raise TypeError(f"expected {cls.__name__} (got {args[0].type()})")
            return args[0].detach()
        if len(args) == 1 and not isinstance(args[0], (int, _C.Size)):
            return _C.tensor(args[0], dtype=cls.dtype, device=device)
        sizes = args[0] if len(args) == 1 and isinstance(args[0], _C.Size) else (args or (0,))
        return _C.ops.empty(sizes, dtype=cls.dtype, device=device)


def _make(name: str, dtype, is_cuda: bool = False):
    return _LegacyType(f"{name}Tensor", (), {"dtype": dtype, "is_cuda": is_cuda, "__module__": "torch.cuda" if is_cuda else "torch",
                                             "__doc__": f"Tensors of {dtype}; FloatTensor(2, 3) and FloatTensor([1, 2]) make one."})


_CLASSES = {name: _make(name, dtype) for name, dtype in _NAMES.items()}
(FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor,
 BoolTensor) = _CLASSES.values()
cuda_classes = {f"{name}Tensor": _make(name, dtype, True) for name, dtype in _NAMES.items()}


def type_name(t: Tensor) -> str:
    """ "torch.FloatTensor" or "torch.cuda.FloatTensor"."""
    name = next(n for n, d in _NAMES.items() if d is t.dtype)
    return f"torch.{'cuda.' if t.is_cuda else ''}{name}Tensor"


def parse_type_name(text: str):
    """(dtype, device) of a type's name; device is None if the name says nothing of it."""
    for name, dtype in _NAMES.items():
        if text in (f"torch.{name}Tensor", f"athanor.{name}Tensor"):
            return dtype, "cpu"
        if text == f"torch.cuda.{name}Tensor":
            return dtype, "cuda"
    raise ValueError(f"invalid type: '{text}'; expected a name such as 'torch.FloatTensor'")


def dtype_of_class(c):
    """The dtype that a dtype object or an old type stands for. Raises ValueError for another class."""
    if c is Tensor:
        return _C.get_default_dtype()
    if not isinstance(c, (_LegacyType, _C.dtype)):
        raise ValueError(f"invalid type: {getattr(c, '__name__', c)!r}; expected a dtype or a name such as 'torch.FloatTensor'")
    return c.dtype if isinstance(c, _LegacyType) else c
