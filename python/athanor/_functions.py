"""The functions of the package: the library's ops, and what Python spells differently from them."""
from __future__ import annotations

import builtins
import warnings
from typing import Any

from . import _C
from ._C import Tensor

_ops = _C.ops

for _name in _C._functions:
    globals()[_name] = getattr(_ops, _name)
del _name

__all__ = [n for n in globals() if not n.startswith("_") and n not in ("annotations", "builtins", "warnings", "Any", "Tensor")]


def _public(function):
    __all__.append(function.__name__)
    return function


def _check_tensor(name: str, input) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")


def _tensors(args, name: str) -> tuple:
    """Tensors given one by one or as one sequence."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = args[0]
    for t in args:
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): expected Tensor as each element, but got {type(t).__name__}")
    return tuple(args)


@_public
def is_tensor(obj) -> builtins.bool:
    """Whether obj is a tensor."""
    return isinstance(obj, Tensor)


@_public
def is_storage(obj) -> builtins.bool:
    """Whether obj is what a tensor's storage methods return."""
    from . import storage

    return isinstance(obj, (storage.UntypedStorage, storage.TypedStorage))


@_public
def numel(input: Tensor) -> builtins.int:
    """The number of elements."""
    _check_tensor("numel", input)
    return input.numel()


@_public
def detach_(input: Tensor) -> Tensor:
    """Takes the tensor out of the graph that made it."""
    _check_tensor("detach_", input)
    return input.detach_()


@_public
def is_floating_point(input: Tensor) -> builtins.bool:
    """Whether the dtype is one of the floating ones."""
    _check_tensor("is_floating_point", input)
    return input.is_floating_point()


@_public
def is_complex(input: Tensor) -> builtins.bool:
    """Always false: there are no complex dtypes."""
    _check_tensor("is_complex", input)
    return False


@_public
def is_nonzero(input: Tensor) -> builtins.bool:
    """Whether the only element is not zero. Raises RuntimeError for any other number of elements."""
    _check_tensor("is_nonzero", input)
    if input.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with " + ("no values" if input.numel() == 0 else "more than one value")
                           + " is ambiguous")
    return builtins.bool(input)


@_public
def is_inference(input: Tensor) -> builtins.bool:
    """Whether the tensor was made in inference mode."""
    _check_tensor("is_inference", input)
    return input.is_inference()


@_public
def empty(*size: Any, memory_format: Any = None, **options: Any) -> Tensor:
    """A tensor of the given sizes whose values are not set; memory_format orders its dims in memory."""
    made = _ops.empty(*size, **options)
    if memory_format is None or memory_format is _C.contiguous_format:
        return made
    return _ops.empty_like(made, memory_format=memory_format).requires_grad_(made.requires_grad)


def _drawn_like(input: Tensor, options: dict, memory_format: Any, generator: Any, draw: Any) -> Tensor:
    requires_grad = options.pop("requires_grad", False)
    made = _ops.empty_like(input, memory_format=memory_format, **options)
    draw(made, generator=generator)
    return made.requires_grad_(requires_grad)


@_public
def rand_like(input: Tensor, *, memory_format: Any = None, generator: Any = None, **options: Any) -> Tensor:
    """Uniform numbers from [0, 1), in a tensor like input; options: those of empty_like."""
    return _drawn_like(input, options, memory_format, generator, Tensor.uniform_)


@_public
def randn_like(input: Tensor, *, memory_format: Any = None, generator: Any = None, **options: Any) -> Tensor:
    """Normal numbers of mean 0 and deviation 1, in a tensor like input; options: those of empty_like."""
    return _drawn_like(input, options, memory_format, generator, Tensor.normal_)


@_public
def randint_like(input: Tensor, low: Any = 0, high: Any = None, *, memory_format: Any = None, generator: Any = None,
                 **options: Any) -> Tensor:
    """Integers from low (0) up to, but not including, high, in a tensor like input; options: those of empty_like."""
    if high is None:
        low, high = 0, low

    def draw(made: Tensor, generator: Any) -> None:
        made.random_(low, high, generator=generator)

    return _drawn_like(input, options, memory_format, generator, draw)


@_public
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False) -> Tensor:
    """A tensor of obj, on its memory unless a copy is asked for or needed. copy=False raises where it would be needed."""
    if copy:
        result = obj.detach().clone() if isinstance(obj, Tensor) else _C.tensor(obj)
        result = result.to(dtype=dtype or result.dtype, device=device or result.device)
    else:
        if copy is False and not isinstance(obj, Tensor) and not _has_buffer(obj):
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        plain = _C.as_tensor(obj)
        result = _C.as_tensor(obj, dtype=dtype, device=device)
        if copy is False and result.data_ptr() != plain.data_ptr():
            raise ValueError("can't alias tensor: dtype or device differ; a copy would be needed")
    if requires_grad and not result.requires_grad:
        result = result.detach().requires_grad_()
    return result


def _has_buffer(obj) -> builtins.bool:
    try:
        memoryview(obj)
        return True
    except TypeError:
        return False


@_public
def frombuffer(buffer, *, dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor on the memory of `buffer`: `count` elements (all: -1) from byte `offset` on. Raises ValueError where
    they do not fit."""
    view = memoryview(buffer).cast("B")
    size = dtype.itemsize
    if offset < 0 or offset >= len(view):
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({len(view)} "
                         "bytes) minus 1")
    if count <= 0 and count != -1:
        raise ValueError(f"both buffer length ({len(view)}) and count ({count}) must not be 0")
    if count == -1:
        if (len(view) - offset) % size:
            raise ValueError(f"buffer length ({len(view) - offset} bytes) after offset ({offset} bytes) must be a multiple "
                             f"of element size ({size})")
        count = (len(view) - offset) // size
    if offset + count * size > len(view):
        raise ValueError(f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be "
                         f"greater than actual buffer length ({len(view)} bytes)")
    part = _C._from_buffer(view[offset:offset + count * size]).view(dtype)
    return part.requires_grad_() if requires_grad else part


@_public
def range(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """start, start + step, … up to and including end. Deprecated in torch in favour of arange."""
    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is inconsistent "
                  "with Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
                  UserWarning, stacklevel=2)
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("range: step must be nonzero")
    if (end - start) / step < 0:
        raise RuntimeError("range: upper bound and lower bound inconsistent with step sign")
    count = builtins.int((end - start) / step) + 1
    values = _ops.arange(count, dtype=_C.float64) * step + start
    if out is not None:
        return out.copy_(values.reshape(out.shape)) if out.numel() == count else out.resize_(values.shape).copy_(values)
    return values.to(dtype=dtype or _C.get_default_dtype(), device=device).requires_grad_(requires_grad)


@_public
def unique(input: Tensor, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements, or slices along dim, and, where asked for, each element's place among them and their counts."""
    values, inverse, counts = _ops.unique(input, sorted, return_inverse, return_counts, dim)
    return _asked_for(values, inverse, counts, return_inverse, return_counts)


@_public
def unique_consecutive(input: Tensor, return_inverse=False, return_counts=False, dim=None):
    """As unique, but of equal neighbours only."""
    values, inverse, counts = _ops.unique_consecutive(input, return_inverse, return_counts, dim)
    return _asked_for(values, inverse, counts, return_inverse, return_counts)


def _asked_for(values, inverse, counts, return_inverse, return_counts):
    if not (return_inverse or return_counts):
        return values
    return (values,) + ((inverse,) if return_inverse else ()) + ((counts,) if return_counts else ())


@_public
def nonzero(input: Tensor, *, as_tuple: bool = False, out=None):
    """The indices of the elements that are not zero: (count, dims), or a tuple with a vector per dim. Raises TypeError for
    as_tuple with out."""
    if as_tuple and out is not None:
        raise TypeError("nonzero(): out= takes one tensor, as_tuple makes one per dim; give one of the two")
    return _ops.nonzero_numpy(input) if as_tuple else _ops.nonzero(input, out=out)


@_public
def where(condition: Tensor, input=None, other=None, *, out=None):
    """input where the condition holds, other elsewhere; with the condition alone, as nonzero(as_tuple=True)."""
    if input is None and other is None:
        return _ops.nonzero_numpy(condition)
    if out is not None:
        return _ops.where(condition, input, other, out=out)
    return _ops.where(condition, input, other)


def _letters(dims) -> str:
    """Dims of einsum given as numbers from 0 to 51, and Ellipsis, as letters."""
    text = ""
    for d in dims:
        if d is not Ellipsis and not 0 <= d < 52:
            raise RuntimeError(f"einsum(): subscripts in subscript list are not within the valid range [0, 52): {d}")
        text += "..." if d is Ellipsis else chr(ord("A") + d if d < 26 else ord("a") + d - 26)
    return text


@_public
def einsum(equation: str | Tensor, *operands) -> Tensor:
    """Sums of products of elements along the dims that the equation names. Instead of an equation, each tensor may be
    followed by a list of its dims as numbers, and all of them by the result's."""
    if isinstance(equation, Tensor):
        if not operands:
            raise ValueError("einsum(): at least one operand and its subscripts list must be provided")
        tensors, dims = (equation, *operands[1::2]), operands[0::2]
        result = None
        if len(operands) % 2 == 0:
            tensors, result = (equation, *operands[1:-1:2]), operands[-1]
            dims = operands[0:-1:2]
        equation = ",".join(_letters(d) for d in dims) + ("" if result is None else "->" + _letters(result))
        operands = tensors
    return _ops.einsum(equation, _tensors(operands, "einsum"))


@_public
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format=None) -> Tensor:
    """input, resized to the template's shape. Arguments and errors: those of Tensor.resize_as_."""
    _check_tensor("resize_as_", input)
    return input.resize_as_(the_template) if memory_format is None else input.resize_as_(the_template, memory_format=memory_format)


@_public
def meshgrid(*tensors, indexing: str | None = None):
    """The coordinates of a grid, one tensor per axis."""
    tensors = _tensors(tensors, "meshgrid")
    return _ops.meshgrid(tensors) if indexing is None else _ops.meshgrid(tensors, indexing=indexing)


@_public
def chain_matmul(*matrices, out=None) -> Tensor:
    """linalg.multi_dot by its old name, of matrices that are given one by one."""
    return _written(_ops.chain_matmul(_tensors(matrices, "chain_matmul")), out)


@_public
def cartesian_prod(*tensors) -> Tensor:
    """All combinations of elements of the given vectors, one per row."""
    return _ops.cartesian_prod(_tensors(tensors, "cartesian_prod"))


@_public
def block_diag(*tensors) -> Tensor:
    """A matrix with the given ones along its diagonal."""
    return _ops.block_diag(_tensors(tensors, "block_diag")) if tensors else _ops.empty((1, 0))


@_public
def broadcast_tensors(*tensors):
    """Views of the tensors, all of their common shape."""
    return _ops.broadcast_tensors(_tensors(tensors, "broadcast_tensors"))


@_public
def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes have in common. Raises RuntimeError if there is none, ValueError for a negative size."""
    result: list = []
    for shape in shapes:
        shape = [shape] if isinstance(shape, builtins.int) else list(shape)
        if builtins.any(size < 0 for size in shape):
            raise ValueError(f"Attempting to broadcast a dimension with negative length: {shape}")
        result = [1] * (len(shape) - len(result)) + result
        for i in builtins.range(1, len(shape) + 1):
            if shape[-i] != 1 and result[-i] not in (1, shape[-i]):
                raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
            result[-i] = shape[-i] if result[-i] == 1 else result[-i]
    return _C.Size(result)


def _atleast(name):
    op = getattr(_ops, name)

    def function(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return op(tensors[0])
        return op(_tensors(tensors, name))

    function.__name__, function.__doc__ = name, f"The tensors with at least {name[-2]} dims."
    return function


atleast_1d, atleast_2d, atleast_3d = (_atleast(f"atleast_{d}d") for d in (1, 2, 3))


@_public
def tensordot(a: Tensor, b: Tensor, dims=2, out=None) -> Tensor:
    """Sums of products over the last `dims` dims of a and the first of b, or over the two lists of dims."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, builtins.int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > builtins.min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got {dims}")
        pair = list(builtins.range(-dims, 0)), list(builtins.range(dims))
    else:
        pair = [list(d) if isinstance(d, (list, tuple)) else [d] for d in dims]
    return _written(_ops.tensordot(a, b, pair[0], pair[1]), out)


def _written(result: Tensor, out) -> Tensor:
    """result, or out with result's shape and values."""
    return result if out is None else _ops.maximum(result, result, out=out)


@_public
def norm(input: Tensor, p="fro", dim=None, keepdim=False, out=None, dtype=None) -> Tensor:
    """The p-norm (p a number, inf, -inf or "fro") of all elements or along dim; with "nuc" that of matrices, the sum of
    their singular values."""
    _check_tensor("norm", input)
    if p == "nuc":
        dims = tuple(builtins.range(input.dim())) if dim is None else dim
        return _written(_ops.linalg_matrix_norm(input, p, dims, keepdim, dtype=dtype), out)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm: p should be a number, inf, -inf, 'fro' or 'nuc', got '{p}'")
    order = 2.0 if p is None or p == "fro" else p
    if dim is not None and isinstance(dim, builtins.int):
        dim = [dim]
    return _written(_ops.linalg_vector_norm(input, order, dim, keepdim, dtype=dtype), out)


@_public
def result_type(*args, **keywords):
    """The dtype that an operation on two tensors or numbers has. They may be given by the names tensor, other, tensor1, tensor2,
    scalar, scalar1, scalar2."""
    known = ("tensor", "tensor1", "scalar", "scalar1", "other", "tensor2", "scalar2")
    if len(args) + len(keywords) != 2 or not set(keywords) <= set(known):
        raise TypeError("result_type() takes two tensors or numbers, got " +
                        ", ".join([type(a).__name__ for a in args] + [f"{k}={type(v).__name__}" for k, v in keywords.items()]))
    tensor1, tensor2 = (*args, *(keywords[name] for name in known if name in keywords))
    def sample(x):
        return _ops.empty((0,) * x.dim(), dtype=x.dtype) if isinstance(x, Tensor) and x.dim() else x
    a, b = sample(tensor1), sample(tensor2)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = _C.tensor(a)
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dim() and b.dim():
        return _C.promote_types(a.dtype, b.dtype)
    both = a + b if not _is_bool(a) or not _is_bool(b) else a | b
    return both.dtype


def _is_bool(x) -> builtins.bool:
    return x.dtype is _C.bool if isinstance(x, Tensor) else isinstance(x, builtins.bool)


@_public
def is_same_size(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether both have the same shape."""
    return input.shape == other.shape


@_public
def compile(model=None, **options):
    """Returns the model as it is: there is no compiler here, programs that ask for one run as before."""
    return (lambda m: m) if model is None else model


@_public
def from_dlpack(ext_tensor, *, device=None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array (or of a DLPack capsule); a copy of it, if asked for, or for another
    device. Raises ValueError for copy=False with another device."""
    from ._tensor import _from_dlpack

    made = _from_dlpack(ext_tensor)
    if device is not None and _C.device(device).type != made.device.type:
        if copy is False:
            raise ValueError(f"from_dlpack: copy=False, but the data lie on {made.device}, not on {device}")
        return made.to(device)
    return made.clone() if copy else made


_CDIST_MODES = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": 1, "donot_use_mm_for_euclid_dist": 2}


@_public
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode="use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm distance of each row of x1 (…, P, M) to each row of x2 (…, R, M), as (…, P, R)."""
    if isinstance(compute_mode, str):
        if compute_mode not in _CDIST_MODES:
            raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
        compute_mode = _CDIST_MODES[compute_mode]
    return _ops.cdist(x1, x2, p, compute_mode)


@_public
def scatter(input: Tensor, dim: int, index: Tensor, src=None, *, value=None, reduce: str | None = None, out=None) -> Tensor:
    """input with src's elements (or a number) at the places that index names along dim; reduce "add" or "multiply"
    combines them with what is there."""
    source = value if src is None else src
    if reduce is None:
        return _ops.scatter(input, dim, index, source) if out is None else _ops.scatter(input, dim, index, source, out=out)
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    if not isinstance(source, Tensor):
        source = _ops.full(tuple(index.shape), source, dtype=input.dtype, device=input.device)
    return _written(_ops.scatter_reduce(input, dim, index, source, "sum" if reduce == "add" else "prod"), out)


@_public
def index_fill(input: Tensor, dim: int, index: Tensor, value) -> Tensor:
    """input with value at the entries of dim that index names."""
    if isinstance(value, Tensor):
        if value.dim():
            raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.dim()} "
                               "dimension(s).")
        place = _ops.zeros((input.shape[dim] if input.dim() else 1,), dtype=_C.bool, device=input.device)
        place = place.index_fill(0, index, 1)
        return input.masked_fill(place.reshape([-1] + [1] * (input.dim() - 1 - dim % input.dim())) if input.dim() else place[0], value)
    return _ops.index_fill(input, dim, index, value)


@_public
def index_put(input: Tensor, indices, values: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """A copy of input with values at the given places, added up there if accumulate."""
    _check_tensor("index_put", input)
    return input.index_put(indices, values, accumulate)


@_public
def index_put_(input: Tensor, indices, values: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """Puts values at the given places of input, adding up there if accumulate."""
    _check_tensor("index_put_", input)
    return input.index_put_(indices, values, accumulate)


@_public
def fill(input: Tensor, value) -> Tensor:
    """A tensor like input with value, a number or a tensor of no dims, everywhere."""
    _check_tensor("fill", input)
    return input.clone().fill_(value)


@_public
def trapz(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """trapezoid by its old name."""
    return _ops.trapezoid(y, dx=dx, dim=dim) if x is None else _ops.trapezoid(y, x, dim=dim)


@_public
def is_signed(input: Tensor) -> builtins.bool:
    """Whether the dtype has negative numbers."""
    _check_tensor("is_signed", input)
    return input.is_signed()


@_public
def get_device(input: Tensor) -> builtins.int:
    """The number of the CUDA device, -1 for the host."""
    _check_tensor("get_device", input)
    return input.get_device()


@_public
def is_conj(input: Tensor) -> builtins.bool:
    """False: numbers are real."""
    _check_tensor("is_conj", input)
    return False


@_public
def is_neg(input: Tensor) -> builtins.bool:
    """False: signs are in the values."""
    _check_tensor("is_neg", input)
    return False


@_public
def isreal(input: Tensor) -> Tensor:
    """True everywhere: numbers are real."""
    return _ops.ones_like(input, dtype=_C.bool)


@_public
def resolve_conj(input: Tensor) -> Tensor:
    """input, which is real."""
    _check_tensor("resolve_conj", input)
    return input


@_public
def resolve_neg(input: Tensor) -> Tensor:
    """input: signs are in the values."""
    _check_tensor("resolve_neg", input)
    return input


@_public
def conj(input: Tensor) -> Tensor:
    """input, which is real."""
    _check_tensor("conj", input)
    return input


@_public
def real(input: Tensor) -> Tensor:
    """input, which is real."""
    _check_tensor("real", input)
    return input


@_public
def typename(obj) -> builtins.str:
    """The name of a tensor's type, "torch.FloatTensor", or of an object's class with its module."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


@_public
def get_num_interop_threads() -> builtins.int:
    """Threads on which forked tasks run."""
    return _C.get_num_threads()


__all__ = sorted(set(__all__) - {"rsub_"})
