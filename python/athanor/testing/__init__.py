"""assert_close and make_tensor, for tests of programs."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from .. import _C, _functions, _settings
from .._C import Tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

_TOLERANCES = {_C.float16: (1e-3, 1e-5), _C.bfloat16: (1.6e-2, 1e-5), _C.float32: (1.3e-6, 1e-5), _C.float64: (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: Optional[float] = None,
                 atol: Optional[float] = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
                 check_layout: bool = True, check_stride: bool = False, msg: Any = None) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere, and shapes, dtypes and devices are
    alike. Numbers, tensors, and sequences and mappings of them; TypeError for anything else. rtol and atol: both or
    neither, then by dtype (1.3e-6 and 1e-5 for float32; exact for integers). equal_nan: NaNs are equal. msg: the
    message, or a function from the usual one."""
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and atol={atol}")
    options = (rtol, atol, equal_nan, check_device, check_dtype, check_stride)
    problem = _difference(actual, expected, "", options)
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg if msg is not None else problem)


def assert_allclose(actual: Any, expected: Any, rtol: Optional[float] = None, atol: Optional[float] = None,
                    equal_nan: bool = True, msg: str = "") -> None:
    """assert_close of tensors or what makes them, whatever their dtypes and devices."""
    expected = _C.as_tensor(expected) if not isinstance(expected, Tensor) else expected
    actual = _C.as_tensor(actual, dtype=expected.dtype) if not isinstance(actual, Tensor) else actual
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
                 msg=msg or None)


def _difference(a: Any, b: Any, place: str, options: tuple) -> str:
    """What is wrong, or nothing."""
    at = f"\n\nThe failure occurred for item {place}" if place else ""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return (f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {sorted(b.keys() - a.keys(), key=str)}"
                    f"\nAdditional keys in the actual mapping: {sorted(a.keys() - b.keys(), key=str)}{at}")
        return next(filter(None, (_difference(a[k], b[k], f"{place}[{k!r}]", options) for k in b)), "")
    if _is_sequence(a) and _is_sequence(b):
        if len(a) != len(b):
            return f"The length of the sequences mismatch: {len(a)} != {len(b)}{at}"
        return next(filter(None, (_difference(x, y, f"{place}[{i}]", options) for i, (x, y) in enumerate(zip(a, b)))), "")
    if a is None and b is None:
        return ""
    if isinstance(a, Tensor) != isinstance(b, Tensor) and not _has_array(a) and not _has_array(b):
        return f"{'Tensors' if isinstance(b, Tensor) else 'Scalars'} are not comparable: {type(a).__name__} and {type(b).__name__}{at}"
    if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
        if isinstance(a, bool) != isinstance(b, bool):
            return f"Booleans mismatch: {a} is not {b}{at}" if a != b else ""
        kind = _C.float64 if isinstance(a, float) or isinstance(b, float) else _C.int64
        text = _tensor_difference(_C.tensor(a, dtype=kind), _C.tensor(b, dtype=kind), options)
        return f"Scalars are not close!\n\nExpected {b} but got {a}.{text and text[text.index(chr(10)):]}{at}" if text else ""
    if not all(isinstance(v, Tensor) or _has_array(v) for v in (a, b)):
        if type(a) is type(b) is str:
            return "" if a == b else f"{a!r} is not {b!r}{at}"
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}.")
    text = _tensor_difference(_C.as_tensor(a), _C.as_tensor(b), options)
    return text + at if text else ""


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _has_array(x: Any) -> bool:
    return hasattr(x, "__array_interface__") and not isinstance(x, (bool, int, float))


def _tensor_difference(a: Tensor, b: Tensor, options: tuple) -> str:
    rtol, atol, equal_nan, check_device, check_dtype, check_stride = options
    if a.shape != b.shape:
        return f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}."
    if check_device and a.device != b.device:
        return f"The values for attribute 'device' do not match: {a.device} != {b.device}."
    if check_dtype and a.dtype != b.dtype:
        return f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}."
    if check_stride and a.stride() != b.stride():
        return f"The values for attribute 'stride()' do not match: {a.stride()} != {b.stride()}."
    if rtol is None or atol is None:
        rtol, atol = (max(pair) for pair in zip(*(_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b))))
    kind = _C.promote_types(a.dtype, b.dtype)
    x, y = (t.detach().cpu().to(kind) for t in (a, b))
    exact = not kind.is_floating_point and rtol == 0 and atol == 0
    equal = x == y if exact else _functions.isclose(*((t if kind.is_floating_point else t.double()) for t in (x, y)),
                                                   rtol=rtol, atol=atol, equal_nan=equal_nan)
    wrong = int((~equal).sum())
    if wrong == 0:
        return ""
    x, y = (t.double() for t in (x, y))
    error = (x - y).abs()
    relative = error / y.abs()
    error[equal] = relative[equal] = 0
    lines = [f"Tensor-likes are not {'equal' if exact else 'close'}!", "",
             f"Mismatched elements: {wrong} / {x.numel()} ({100 * wrong / x.numel():.1f}%)"]
    for name, e, allowed in (("absolute", error, atol), ("relative", relative, rtol)):
        e = e.nan_to_num(float("inf"), float("inf"))
        where = _place(e)
        limit = "" if exact else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {name} difference: {e.max().item()} at index {where}{limit}")
    return "\n".join(lines)


def _place(e: Tensor) -> tuple:
    flat, place = int(e.argmax()), []
    for size in reversed(e.shape):
        place.append(flat % size)
        flat //= size
    return tuple(reversed(place))


def make_tensor(*shape: Any, dtype: Any, device: Any = "cpu", low: Optional[float] = None, high: Optional[float] = None,
                requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
                memory_format: Any = None) -> Tensor:
    """A tensor of random numbers from [low, high): [-9, 9) unless given, [-9, 10) for whole numbers, [0, 10) for uint8. bools
    are False or True. noncontiguous: every second element of a larger one. exclude_zero: 0 becomes the least positive number,
    1 for whole numbers. Raises ValueError for low above high, and for a gradient of whole numbers."""
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    floating = dtype.is_floating_point
    if requires_grad and not floating:
        raise ValueError(f"make_tensor: `requires_grad` must be False for boolean and integral dtypes, but got {dtype}")
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: The parameters `noncontiguous` and `memory_format` are mutually exclusive")
    if dtype is _C.bool:
        low, high = 0, 2
    low = (0 if dtype is _C.uint8 else -9) if low is None else low
    high = (9 if floating else 10) if high is None else high
    if low > high:
        raise ValueError(f"make_tensor: `low` must be at most `high`, but got {low} > {high}")
    drawn = sizes[:-1] + (2 * sizes[-1],) if noncontiguous and sizes else sizes
    if floating:
        values = _functions.rand(drawn, dtype=dtype if dtype is _C.float64 else _C.float32, device=device)
        values = (values * (high - low) + low).to(dtype)
    else:
        values = _functions.randint(int(low), max(int(high), int(low) + 1), drawn, dtype=dtype, device=device)
    if noncontiguous and sizes:
        values = values[..., ::2]
    if exclude_zero:
        values[values == 0] = _settings.finfo(dtype).tiny if floating else 1
    if memory_format is not None:
        values = values.contiguous(memory_format=memory_format)
    return values.requires_grad_(requires_grad)
