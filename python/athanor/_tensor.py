"""Methods of Tensor that are written in Python; importing this module attaches them."""
from __future__ import annotations

import builtins

from . import _C, _functions
from ._C import Tensor

_BUFFER_CODES = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1",
    "uint8": "|u1", "bool": "|b1",
}


class _Memory:
    """What NumPy is shown: an address, sizes, strides; holds the tensor for as long as an array looks at it."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor, code: str):
        size = tensor.element_size()
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3, "shape": tuple(tensor.shape), "typestr": code, "data": (tensor.data_ptr(), False),
            "strides": tuple(s * size for s in tensor.stride()),
        }


def _numpy(self: Tensor, *, force: bool = False):
    """A NumPy array on the same memory. Raises TypeError for bfloat16 and other devices, RuntimeError for tensors that
    require grad; force=True detaches and copies to the host first."""
    import numpy

    tensor = self
    if force:
        tensor = tensor.detach().cpu()
    if tensor.is_cuda:
        raise TypeError(f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                        "host memory first.")
    if tensor.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    name = str(tensor.dtype)[6:]
    if name not in _BUFFER_CODES:
        raise TypeError(f"Got unsupported ScalarType {'BFloat16' if name == 'bfloat16' else name}")
    if tensor.numel() == 0:
        return numpy.empty(tuple(tensor.shape), dtype=_BUFFER_CODES[name])
    return numpy.asarray(_Memory(tensor, _BUFFER_CODES[name]))


def _array(self: Tensor, dtype=None, copy=None):
    """What NumPy takes the tensor for: numpy(), converted to dtype, and copied if asked for. Raises as numpy()."""
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def _array_wrap(self: Tensor, array, context=None, return_scalar: builtins.bool = False) -> Tensor:
    """What NumPy's functions make of the tensor becomes a tensor again, on the array's memory. Bools become uint8. Raises
    TypeError for a dtype that tensors have not."""
    return _C.from_numpy(array.astype("uint8") if array.dtype == bool else array)


def _format(self: Tensor, spec: str) -> str:
    if self.dim() == 0 and type(self) is Tensor:
        return format(self.item(), spec)
    return object.__format__(self, spec)


def _type(self: Tensor, dtype=None, non_blocking: bool = False):
    """The name of the tensor's type, "torch.FloatTensor", or the tensor converted to a dtype or such a name."""
    from . import _legacy

    if dtype is None:
        return _legacy.type_name(self)
    if isinstance(dtype, str):
        dtype, device = _legacy.parse_type_name(dtype)
        return self.to(device, dtype) if device else self.to(dtype)
    return self.to(_legacy.dtype_of_class(dtype))


class RemovableHandle:
    """What registering a hook gives; remove() takes it away. Also a context manager."""

    def __init__(self, remove):
        self._remove = remove

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def _register_hook(self: Tensor, hook) -> RemovableHandle:
    """Calls hook(grad) when the gradient of this tensor is there; what it returns, if anything, replaces it."""
    number = self._register_hook(hook)
    return RemovableHandle(lambda: self._remove_hook(number))


def _register_post_accumulate_grad_hook(self: Tensor, hook) -> RemovableHandle:
    """Calls hook(tensor) after a gradient was added to this leaf's grad."""
    number = self._register_post_accumulate_grad_hook(hook)
    return RemovableHandle(lambda: self._remove_hook(number))


def _reduce_ex(self: Tensor, protocol: int):
    from . import _serialization

    return _serialization._reduce_tensor(self, protocol)


def _copy(self: Tensor) -> Tensor:
    """copy.copy: a leaf of the same class and attributes over the same memory."""
    result = self.detach()
    if type(self) is not Tensor:
        result = _C._make_subclass(type(self), result)
    result.requires_grad_(self.requires_grad)
    if self.__dict__:
        result.__dict__.update(self.__dict__)
    return result


def _copy_with_memory(t: Tensor, memo: dict) -> Tensor:
    """A copy of a tensor's whole memory, once for all tensors in it, so that what shared memory shares that of the copy."""
    storage = t.untyped_storage()
    if storage.data_ptr() == 0:  # nothing to share
        return t.clone(memory_format=_C.preserve_format)
    key = ("storage", storage.data_ptr(), t.device)
    if key not in memo:
        # With the original, so that its address is nobody else's while the memo lives.
        memo[key] = t, t.as_strided((storage.nbytes() // t.element_size(),), (1,), 0).clone()
    whole = memo[key][1]
    if whole.dtype != t.dtype:
        if whole.nbytes % t.element_size():
            return t.clone(memory_format=_C.preserve_format)
        whole = whole.view(t.dtype)
    return whole.as_strided(t.shape, t.stride(), t.storage_offset()).detach()


def _deepcopy(self: Tensor, memo: dict):
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                           "moment")
    if id(self) in memo:
        return memo[id(self)]
    result = _copy_with_memory(self.detach(), memo)
    if type(self) is not Tensor:
        result = _C._make_subclass(type(self), result)
    result.requires_grad_(self.requires_grad)
    if self.grad is not None:
        result.grad = _deepcopy(self.grad, memo)
    memo[id(self)] = result
    if self.__dict__:
        import copy

        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return result


def _new_tensor(self: Tensor, data, *, dtype=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """A new tensor of the data, with this one's dtype and device unless told otherwise."""
    return _C.tensor(data.detach().clone() if isinstance(data, Tensor) else data, dtype=dtype or self.dtype,
                     device=device or self.device, requires_grad=requires_grad)


def _new(self: Tensor, *args, size=None) -> Tensor:
    """A tensor of this one's dtype and device: of the given sizes, with any values, of the values in a list, or of a tensor's
    or a storage's elements, which it shares."""
    from .storage import _Storage

    if size is not None:
        args = (_C.Size(size),)
    if len(args) == 1 and isinstance(args[0], (Tensor, _Storage)):
        shared = args[0].detach() if isinstance(args[0], Tensor) else args[0]._all
        if shared.dtype != self.dtype:
            raise TypeError(f"new(): expected elements of {self.dtype}, got {shared.dtype}")
        return shared
    if len(args) == 1 and (isinstance(args[0], (list, tuple)) or hasattr(args[0], "__array__")) and not isinstance(
            args[0], (_C.Size, Tensor)):
        return self.new_tensor(args[0])
    return self.new_empty(args[0] if len(args) == 1 and isinstance(args[0], _C.Size) else (args or (0,)))


def _resize(self: Tensor, *sizes, size=None, memory_format=_C.contiguous_format) -> Tensor:
    """Gives the tensor these sizes, in its own storage where they fit into that; else in a new one, which begins with the old
    elements, and which views of the old one do not follow. What no old element fills has any value. Raises RuntimeError
    for a tensor that requires grad."""
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if size is not None:
        sizes = (size,)
    if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)):
        sizes = tuple(sizes[0])
    if any(s < 0 for s in sizes):
        raise RuntimeError(f"resize_: sizes should not be negative, got {list(sizes)}")
    if tuple(self.shape) == tuple(sizes):
        return self
    like = self.new_empty(sizes).contiguous(memory_format=memory_format)
    room = _C._io.storage_id(self)[1] // self.element_size() - self.storage_offset()
    if like.numel() <= room:
        self.set_data(self.detach().as_strided(sizes, like.stride(), self.storage_offset()))
    else:
        old = self.detach().as_strided((room,), (1,), self.storage_offset())
        like.as_strided((room,), (1,)).copy_(old)
        self.set_data(like)
    return self


def _resize_as(self: Tensor, the_template: Tensor, *, memory_format=_C.contiguous_format) -> Tensor:
    """resize_ to the sizes of another tensor."""
    return self.resize_(tuple(the_template.shape), memory_format=memory_format)


def _set(self: Tensor, source=None, storage_offset=0, size=None, stride=None) -> Tensor:
    """Makes the tensor one of another tensor's storage (or of an UntypedStorage's), with its sizes and strides or those given;
    without source: an empty tensor. Raises RuntimeError for another dtype."""
    from . import storage

    if source is None:
        source = self.new_empty(0)
    elif isinstance(source, (storage.UntypedStorage, storage.TypedStorage)):
        if isinstance(source, storage.TypedStorage):
            if source.dtype != self.dtype:
                raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
            source = source.untyped()
        source = source._as(self.dtype)
        size = (source.numel() - storage_offset,) if size is None else size
    if source.dtype != self.dtype:
        raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
    if size is not None:
        stride = self.new_empty(size).stride() if stride is None else stride
        source = source.detach().as_strided(size, stride, storage_offset)
    self.set_data(source.detach())
    return self


def _fill_diagonal(self: Tensor, fill_value, wrap: builtins.bool = False) -> Tensor:
    """Writes a number to the elements whose indices are all the same. wrap: a matrix that is higher than wide has another
    diagonal below. Raises RuntimeError for fewer than two dims, or more than two of unequal sizes."""
    if self.dim() < 2:
        raise RuntimeError(f"fill_diagonal_: dimensions must larger than 1, got a tensor of sizes {list(self.shape)}")
    if self.dim() > 2 and len(set(self.shape)) > 1:
        raise RuntimeError(f"fill_diagonal_: all dimensions of input must be of equal length, got {list(self.shape)}")
    if self.numel() == 0:
        return self
    _diagonal(self, 0, min(self.shape)).fill_(fill_value)
    if wrap and self.dim() == 2:
        rows, columns = self.shape
        for top in range(columns + 1, rows, columns + 1):
            _diagonal(self, top, min(rows - top, columns)).fill_(fill_value)
    return self


def _diagonal(self: Tensor, top: builtins.int, length: builtins.int) -> Tensor:
    return self.as_strided((length,), (sum(self.stride()),), self.storage_offset() + top * self.stride(0))


def _float_power(self: Tensor, exponent) -> Tensor:
    """self ** exponent in float64, in place. Raises RuntimeError unless the tensor is of that dtype."""
    if self.dtype != _C.float64:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.dtype} but the operation's result requires dtype "
                           "torch.float64")
    return self.pow_(exponent.double() if isinstance(exponent, Tensor) else exponent)


def _untyped_storage(self: Tensor):
    """The memory that the tensor lies in, as bytes."""
    from . import storage

    return storage.UntypedStorage._of(self)


def _typed_storage(self: Tensor):
    """The memory that the tensor lies in, as elements of its dtype."""
    from . import storage

    return storage.TypedStorage._of(self)


def _dim_order(self: Tensor, *, ambiguity_check=False) -> tuple:
    """The dims from the one with the largest stride to the one with the smallest."""
    strides = self.stride()
    return tuple(sorted(range(self.dim()), key=lambda d: -strides[d]))


def _is_view(self: Tensor) -> builtins.bool:
    """Whether the tensor shows another's values, and backward knows of it."""
    return self._base is not None


def _no(doc: str):
    def method(self: Tensor) -> builtins.bool:
        return False

    method.__doc__ = doc
    return method


def _dlpack(self: Tensor, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A capsule on the tensor's memory, as the DLPack standard says."""
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return _C._to_dlpack(self.clone() if copy else self, max_version is not None and tuple(max_version) >= (1, 0))


def _dlpack_device(self: Tensor):
    return (1, 0)


def _from_dlpack(source) -> Tensor:
    if hasattr(source, "__dlpack__"):
        try:
            source = source.__dlpack__(max_version=(1, 0))
        except TypeError:
            source = source.__dlpack__()
    return _C._from_dlpack(source)


def _split(self: Tensor, split_size, dim: int = 0):
    """Views of split_size along dim (the last may be smaller), or of the sizes in a list."""
    return _functions.split(self, split_size, dim)


def _where(self: Tensor, condition: Tensor, other) -> Tensor:
    """This tensor where the condition holds, other elsewhere."""
    return _functions.where(condition, self, other)


def _share_memory_(self: Tensor) -> Tensor:
    """Moves the values into memory that processes can share."""
    from .multiprocessing import reductions

    return reductions.share_memory_(self)


def _is_shared(self: Tensor) -> builtins.bool:
    """Whether the values lie in such memory."""
    from .multiprocessing import reductions

    return reductions.is_shared(self)


def _map(self: Tensor, tensor: Tensor, callable) -> Tensor:
    """Replaces each element by callable(element, that of the other tensor). Slow, as apply_."""
    values = [callable(a, b) for a, b in zip(self.flatten().tolist(), tensor.expand_as(self).flatten().tolist())]
    return self.copy_(_C.tensor(values, dtype=self.dtype).view(self.shape))


def _apply(self: Tensor, callable) -> Tensor:
    """Replaces each element by callable(element). Slow: meant for trying things out."""
    return self.copy_(_C.tensor([callable(v) for v in self.flatten().tolist()], dtype=self.dtype).view(self.shape))


def _method(function):
    """A method that is a function of the package on the tensor."""
    def method(self, *args, **keywords):
        return function(self, *args, **keywords)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


def _reversed(self: Tensor) -> Tensor:
    """The tensor with its first dim in reverse order."""
    return self if self.dim() == 0 else self.flip(0)


def _places(self: Tensor, indices) -> tuple:
    """Indices on self's device, masks among them replaced by the places where they hold."""
    places: list = []
    for i in indices:
        if i.device != self.device and i.device == _C.device("cpu"):
            i = i.to(self.device)
        places += i.nonzero(as_tuple=True) if i.dtype in (_C.bool, _C.uint8) else [i]
    return tuple(places)


def _has_number_mask(indices) -> builtins.bool:
    """Whether one is a mask without dims: it chooses all or nothing, and belongs to no dim. Checks them on the way."""
    if isinstance(indices, Tensor):
        raise TypeError("index_put_(): argument 'indices' (position 1) must be tuple of Tensors, not Tensor")
    if len(indices) == 0:
        raise IndexError("index_put_: at least one index must be provided; copy_ and fill_ change the whole tensor")
    for n, i in enumerate(indices):
        if not isinstance(i, Tensor):
            raise TypeError(f"index_put_: expected Tensor as element {n} in argument 0, but got {type(i).__name__}")
    return any(i.dim() == 0 and i.dtype in (_C.bool, _C.uint8) for i in indices)


def _index_put(self: Tensor, indices, values: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """A copy with values at the given places, added up there if accumulate."""
    if _has_number_mask(indices):
        return _index_put_(self.clone(), indices, values, accumulate)
    return _C.ops.index_put_with(self, _places(self, indices), values, accumulate)


def _index_put_(self: Tensor, indices, values: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """Puts values at the given places, adding up there if accumulate."""
    if _has_number_mask(indices):
        places = tuple(indices)
        self[places] = self[places] + values if accumulate else values
        return self
    return _C.ops.index_put_with_(self, _places(self, indices), values, accumulate)


def _polygamma(self: Tensor, n: int) -> Tensor:
    """The derivative of order n of digamma at each element. Raises RuntimeError for a negative n."""
    return _functions.polygamma(n, self)


def _polygamma_(self: Tensor, n: int) -> Tensor:
    """The derivative of order n of digamma at each element, in place. Raises RuntimeError for integers."""
    # Backward needs the old values.
    result = _functions.polygamma(n, self.clone() if self.requires_grad else self)
    if not _C.can_cast(result.dtype, self.dtype):
        raise RuntimeError(f"polygamma_: result type {result.dtype} can't be cast to the desired output type {self.dtype}")
    return self.copy_(result)


def _scatter_(self: Tensor, *args, **keywords) -> Tensor:
    """Writes values at index along dim: scatter_(dim, index, src), or a value for src. reduce="add" or "multiply" combines
    them with what is there. index is not larger than src in any dim; IndexError for places outside."""
    if "reduce" in keywords:
        return self.copy_(_functions.scatter(self, *args, **keywords))
    return _C.ops.scatter_(self, *args, **keywords)


def _is_set_to(self: Tensor, tensor: Tensor) -> builtins.bool:
    """Whether both are the same memory in the same shape and strides."""
    return self.data_ptr() == tensor.data_ptr() and self.shape == tensor.shape and self.stride() == tensor.stride()


def _get_device(self: Tensor) -> builtins.int:
    """The number of the CUDA device, -1 for the host."""
    return self.device.index if self.is_cuda else -1


def _itself(doc: str):
    def method(self: Tensor) -> Tensor:
        return self

    method.__doc__ = doc
    return method


def _pin_memory(self: Tensor, device=None) -> Tensor:
    """The tensor itself: the host's memory needs no pinning for the devices here."""
    return self


def _is_pinned(self: Tensor, device=None) -> builtins.bool:
    """False: nothing is pinned."""
    return False


def _to_dense(self: Tensor, dtype=None, *, masked_grad=None) -> Tensor:
    """The tensor itself, which is dense, or converted to a dtype."""
    return self if dtype is None else self.to(dtype)


def _is_coalesced(self: Tensor) -> builtins.bool:
    """True: every tensor is dense."""
    return True


def _const_data_ptr(self: Tensor) -> builtins.int:
    """The address of the first element."""
    return self.data_ptr()


def _attach() -> None:
    methods = {
        "numpy": _numpy, "__array__": _array, "__format__": _format, "type": _type, "register_hook": _register_hook,
        "register_post_accumulate_grad_hook": _register_post_accumulate_grad_hook, "__copy__": _copy, "__deepcopy__": _deepcopy,
        "__reduce_ex__": _reduce_ex, "new_tensor": _new_tensor, "new": _new, "resize_": _resize, "resize_as_": _resize_as, "set_": _set, "fill_diagonal_": _fill_diagonal,
        "float_power_": _float_power, "untyped_storage": _untyped_storage, "storage": _typed_storage, "dim_order": _dim_order,
        "_is_view": _is_view,
        "isreal": _method(_functions.isreal), "is_conj": _no("False: numbers are real."), "is_neg": _no("False: signs are in the values."), "__dlpack__": _dlpack,
        "__dlpack_device__": _dlpack_device, "split": _split, "where": _where, "is_shared": _is_shared, "map_": _map,
        "apply_": _apply, "__reversed__": _reversed, "index_put": _index_put, "index_put_": _index_put_,
        "polygamma": _polygamma, "polygamma_": _polygamma_, "__array_wrap__": _array_wrap, "unique": _method(_functions.unique),
        "unique_consecutive": _method(_functions.unique_consecutive), "nonzero": _method(_functions.nonzero),
        "norm": _method(_functions.norm), "is_same_size": _method(_functions.is_same_size),
        "scatter": _method(_functions.scatter), "index_fill": _method(_functions.index_fill),
        "scatter_": _scatter_,
        "is_nonzero": _method(_functions.is_nonzero),
        "is_set_to": _is_set_to, "get_device": _get_device, "pin_memory": _pin_memory, "is_pinned": _is_pinned,
        "coalesce": _itself("The tensor itself, which is dense."), "to_dense": _to_dense,
        "is_coalesced": _is_coalesced, "conj": _itself("The tensor itself, which is real."),
        "resolve_conj": _itself("The tensor itself, which is real."),
        "resolve_neg": _itself("The tensor itself: signs are in the values."), "const_data_ptr": _const_data_ptr,
        "share_memory_": _share_memory_, "__array_priority__": 1000,
        "_make_subclass": staticmethod(_C._make_subclass), "layout": property(lambda self: _C.strided, doc="torch.strided, of every tensor."),
        "real": property(lambda self: self, doc="The tensor itself, which is real."),
        "names": property(lambda self: (None,) * self.dim(), doc="None for each dim: dims have no names."),
        "__module__": "athanor",
    }
    for kind in ("is_mps", "is_xpu", "is_xla", "is_mkldnn", "is_nested", "is_sparse_csr"):
        methods[kind] = property(lambda self: False, doc="Always false.")
    for name, value in methods.items():
        setattr(Tensor, name, value)


_attach()
