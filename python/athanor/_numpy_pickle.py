"""NumPy's arrays, numbers and dtypes in a pickle, made of plain bytes: NumPy's own functions would let a file choose a
dtype of objects, whose bytes are pointers."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from athanor._weights_pickle import Callee, Machine, Pending, malformed

_DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "c8", "c16")
_ORDERS = ("<", ">", "|", "=")


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise malformed("it holds arrays of NumPy, which is not there") from None
    return numpy


def _dtype(name: Any, *_: Any) -> Pending:
    if not isinstance(name, str) or name not in _DTYPES:
        raise malformed(f"numpy.dtype of {str(name)[:60]!r}, expected one of {', '.join(_DTYPES)}")

    # (version, byte order, subarray, names, fields, size, alignment, flags): plain numbers have an order only.
    def build(state: Any) -> Any:
        known = isinstance(state, tuple) and len(state) in (8, 9) and isinstance(state[1], str)
        if not known or state[1] not in _ORDERS or any(part is not None for part in state[2:5]):
            raise malformed("a NumPy dtype of another form")
        return _numpy().dtype(name).newbyteorder(state[1])

    return Pending(build)


def _plain(dtype: Any) -> Any:
    numpy = _numpy()
    if not isinstance(dtype, numpy.dtype) or dtype.str[1:] not in _DTYPES:
        raise malformed("a NumPy array without a dtype of numbers")
    return numpy


def _array(machine: Machine, dtype: Any, shape: Any, raw: Any, order: str) -> Any:
    numpy = _plain(dtype)
    if isinstance(raw, str):  # Python 2
        raw = raw.encode("latin1")
    if not isinstance(raw, (bytes, bytearray)):
        raise malformed("a NumPy array without its bytes")
    if not isinstance(shape, tuple) or len(shape) > 32 or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise malformed("a NumPy array with a shape that is none")
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size != len(raw):
        raise malformed(f"a NumPy array of shape {shape} and {dtype} would have {size} bytes, there are {len(raw)}")
    machine.count_copied(size)
    flat = numpy.frombuffer(bytearray(raw), dtype) if size else numpy.empty(0, dtype)
    if dtype.kind == "b" and (flat.view("u1") > 1).any():
        raise malformed("a NumPy array of bools with other bytes than 0 and 1")
    return flat.reshape(shape, order=order)


def _reconstruct(machine: Machine, kind: Any, *_: Any) -> Pending:
    if kind is not _NDARRAY:
        raise malformed("an array of a class of its own")

    # (version, shape, dtype, whether columns come first, bytes)
    def build(state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) != 5:
            raise malformed("a NumPy array of another form")
        return _array(machine, state[2], state[1], state[4], "F" if state[3] is True or state[3] == 1 else "C")

    return Pending(build)


def _from_buffer(machine: Machine, raw: Any, dtype: Any, shape: Any, order: Any) -> Any:
    if not isinstance(order, str) or order not in ("C", "F"):
        raise malformed("a NumPy array of another order")
    return _array(machine, dtype, shape, raw, order)


def _scalar(machine: Machine, dtype: Any, raw: Any) -> Any:
    return _array(machine, dtype, (), raw, "C")[()]


def _refuse_call(*_: Any) -> Any:
    raise malformed("numpy.ndarray is called, which only names something")


_NDARRAY = Callee("numpy.ndarray", _refuse_call)


def numpy_names() -> Dict[Tuple[str, str], Any]:
    names: Dict[Tuple[str, str], Any] = {("numpy", "ndarray"): _NDARRAY, ("numpy", "dtype"): Callee("numpy.dtype", _dtype)}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = Callee("_reconstruct", _reconstruct, counts=True)
        names[f"{core}.multiarray", "scalar"] = Callee("scalar", _scalar, counts=True)
        names[f"{core}.numeric", "_frombuffer"] = Callee("_frombuffer", _from_buffer, counts=True)
    return names
