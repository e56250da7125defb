"""save and load: PyTorch's files, a ZIP archive of a pickle and of the values of storages; and pickling of tensors.

``load`` runs nothing of what a file asks for: it reads the pickle itself (``_weights_pickle``), knows the names that
state_dicts, tensors and NumPy's arrays of numbers need, and refuses a file with others unless told that it is trusted.
"""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import sys
import zipfile
import zlib
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple, Union

import athanor
from athanor import Tensor
from athanor._atomic_file import atomic_file
from athanor._C import _io
from athanor._unpickling import STORAGES, LoadedStorage
from athanor._unpickling import add_safe_globals as add_safe_globals
from athanor._unpickling import clear_safe_globals as clear_safe_globals
from athanor._unpickling import get_safe_globals as get_safe_globals
from athanor._unpickling import safe_globals as safe_globals
from athanor._unpickling import unpickle

_ALIGNMENT = 64
# A deflate block codes at most 258 bytes in two bits. Pickles are stored as they are; packed again, they shrink by tens.
_MOST_INFLATED = 1032
_MOST_INFLATED_PICKLE = 100


def _dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


# Writing.


class _Name:
    """A name in a pickle that stands for something of PyTorch's."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self) -> None:  # the pickler asks whether what it calls can be called
        raise TypeError(f"{self.module}.{self.name} stands in pickles only")


_REBUILD_TENSOR = _Name("torch._utils", "_rebuild_tensor_v2")
_REBUILD_PARAMETER = _Name("torch._utils", "_rebuild_parameter")
_SIZE = _Name("torch", "Size")
_DEVICE = _Name("torch", "device")
_NAMES: Dict[str, _Name] = {}


def _torch_name(name: str) -> _Name:
    return _NAMES.setdefault(name, _Name("torch", name))


class _StorageOf:
    """A tensor's storage on its way into the pickle, and the device that it is of."""

    def __init__(self, tensor: Tensor, location: str) -> None:
        self.tensor = tensor
        self.location = location


# The one written in Python can write names of modules that are not here.
_PythonPickler: Any = getattr(pickle, "_Pickler")


class _Pickler(_PythonPickler):
    dispatch = _PythonPickler.dispatch.copy()

    def __init__(self, file: Any, protocol: int, pickle_module: Any = pickle) -> None:
        super().__init__(file, protocol)
        self.storages: List[Tensor] = []
        self._keys: Dict[Tuple[int, str], str] = {}
        self._kept: List[Any] = []  # a freed object's address would be taken for the next one

    def _save_name(self, name: _Name) -> None:
        text = f"{name.module}\n{name.name}\n".encode()
        self.write(pickle.GLOBAL + text)
        self.memoize(name)

    dispatch[_Name] = _save_name

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _StorageOf):
            return None
        t = obj.tensor
        dtype = _dtype_name(t.dtype)
        address, size = _io.storage_id(t)
        key = self._keys.get((address, dtype))
        if key is None:
            key = self._keys[address, dtype] = str(len(self.storages))
            self.storages.append(t)
        return ("storage", _torch_name(STORAGES[dtype]), key, obj.location, size // t.element_size())

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return NotImplemented if _has_no_shape(obj) else self._reduce_tensor(obj)
        if isinstance(obj, athanor.device):
            return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, athanor.Size):
            return _SIZE, (tuple(obj),)
        return NotImplemented

    def _reduce_tensor(self, t: Tensor) -> Any:
        values = t.detach()
        self._kept.append(values)
        hooks: Any = collections.OrderedDict()
        if isinstance(t, _parameter_class()):
            return _REBUILD_PARAMETER, (values, t.requires_grad, hooks)
        if values.device.type != "cpu":
            values = values.cpu().contiguous()
            self._kept.append(values)
        storage = _StorageOf(values, str(t.device))
        self._kept.append(storage)
        place = (values.storage_offset(), tuple(values.shape), tuple(values.stride()))
        return _REBUILD_TENSOR, (storage, *place, t.requires_grad, hooks)

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(obj, athanor.dtype):  # a name, not a call
            name = _torch_name(_dtype_name(obj))
            found = self.memo.get(id(name))
            if found is not None:
                self.write(self.get(found[0]))
            else:
                self._save_name(name)
            return None
        return super().save(obj, save_persistent_id)


def _has_no_shape(t: Tensor) -> bool:
    """Whether it is a lazy module's, which says itself how it is made again."""
    parameter = sys.modules.get("athanor.nn.parameter")
    return parameter is not None and parameter.is_lazy(t)


def _parameter_class() -> Any:
    parameter = sys.modules.get("athanor.nn.parameter")
    return parameter.Parameter if parameter is not None else ()


def save(
    obj: Any,
    f: Union[str, "os.PathLike[str]", BinaryIO],
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Writes what ``athanor.load`` and ``torch.load`` read, for the latter tensors in containers of any depth.

    A path appears under its name whole or not at all. Tensors that share a storage share it again when they are read;
    storages are written whole, whatever part the tensors use: ``save(x[:10].clone(), f)`` writes ten rows only.

    Args:
        obj: tensors, state_dicts, anything that can be pickled.
        f: a path, or a file open for writing.
        pickle_protocol: of the pickle in the file.
    """
    content = io.BytesIO()
    pickler = _Pickler(content, pickle_protocol)
    pickler.dump(obj)
    if isinstance(f, (str, bytes, os.PathLike)):
        _write_file(os.fspath(f), content.getbuffer(), pickler.storages)
        return
    if not callable(getattr(f, "write", None)):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute, got "
            f"{type(f).__name__}"
        )
    try:
        begins_at_zero = f.seekable() and f.tell() == 0
    except (AttributeError, OSError):
        begins_at_zero = False
    if begins_at_zero:
        _write_archive(f, content.getbuffer(), pickler.storages)
        return
    whole = io.BytesIO()
    _write_archive(whole, content.getbuffer(), pickler.storages)
    f.write(whole.getbuffer())


def _write_file(path: str, pickled: memoryview, storages: List[Tensor]) -> None:
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    with atomic_file(path) as file:
        _write_archive(file, pickled, storages)


def _write_archive(file: Any, pickled: memoryview, storages: List[Tensor]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:

        def add(name: str, content: Any) -> None:
            info = zipfile.ZipInfo("archive/" + name)
            # Values begin at a multiple of 64 bytes, so that they can be used where a mapped file has them.
            begin = file.tell() + 30 + len(info.filename.encode()) + (20 if len(content) > 2_000_000_000 else 0)
            padding = (-(begin + 4)) % _ALIGNMENT
            info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
            archive.writestr(info, content)

        add("data.pkl", pickled)
        add("byteorder", b"little")
        for i, tensor in enumerate(storages):
            add(f"data/{i}", _io.storage_memory(tensor))
        add("version", b"3\n")


# Reading.


class _StorageProxy:
    """What a ``map_location`` function gets for a storage; ``cuda`` and ``cpu`` say where it shall go."""

    def __init__(self, device: Any = None) -> None:
        self.device = device

    def cpu(self) -> "_StorageProxy":
        return _StorageProxy(None)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> "_StorageProxy":
        return _StorageProxy(device if isinstance(device, athanor.device) else athanor.device("cuda", device or 0))


def _placement(map_location: Any) -> Callable[[str], Any]:
    """A function from a saved location to the device where its tensors shall be; None is the host."""

    def device_of(place: Any) -> Any:
        device = place if isinstance(place, athanor.device) else athanor.device(place)
        if device.type == "cpu":
            return None
        if not athanor.cuda.is_available():
            raise RuntimeError(
                f"Attempting to deserialize object on {device} but torch.cuda.is_available() is False: load it with "
                "map_location='cpu' to have its tensors on the host"
            )
        return device

    if map_location is None:
        return device_of
    if isinstance(map_location, (str, int, athanor.device)):
        return lambda _: device_of(map_location)
    if isinstance(map_location, dict):
        return lambda location: device_of(map_location.get(location, location))

    def asked(location: str) -> Any:
        result = map_location(_StorageProxy(), location)
        return device_of(location) if result is None else result.device

    return asked


class _Archive:
    """The entries of an open file, and its storages as tensors of bytes."""

    def __init__(self, file: Any, name: str, mapped: bool) -> None:
        self.name = name
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError) as e:  # ValueError: a place before its begin, in older Pythons
            raise self._not_an_archive(e) from None
        self._check_entries()
        pickles = [n for n in self._zip.namelist() if n.endswith("/data.pkl") and n.count("/") == 1]
        if not pickles:
            raise RuntimeError(f"{name}: a ZIP archive without data.pkl: not written by torch.save")
        self.folder = pickles[0][: -len("data.pkl")]
        if self.folder + "constants.pkl" in self._zip.namelist():
            raise RuntimeError(f"{name}: a TorchScript archive; save the module's state_dict() in Python instead")
        order = self.folder + "byteorder"
        if order in self._zip.namelist() and self._read(order) != b"little":
            raise RuntimeError(f"{name}: written on a machine of another byte order")
        self._mapping = None
        if mapped:
            import mmap

            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def _not_an_archive(self, error: Exception) -> Exception:
        self._file.seek(0)
        begin = self._file.read(512)
        if not begin:
            return EOFError(f"{self.name}: the file is empty")
        if begin[:9] == b"\x80\x02\x8a\x0al\xfc\x9cF\xf9" or begin[257:262] == b"ustar":
            return RuntimeError(
                f"{self.name}: a file of PyTorch before 1.6, which is not read here; with PyTorch, "
                "torch.save(torch.load(path), path) turns it into today's form"
            )
        return pickle.UnpicklingError(
            f"{self.name}: neither a ZIP archive nor anything else that torch.save writes ({error})"
        )

    def _check_entries(self) -> None:
        """Has the entries lie apart: such as share bytes would let a small file unpack to any size."""
        infos = sorted(self._zip.infolist(), key=lambda info: info.header_offset)
        for info, following in zip(infos, infos[1:]):
            if info.header_offset + 30 + info.compress_size > following.header_offset:
                raise RuntimeError(f"{self.name}: the file is damaged: entries of the archive overlap")
        names = {info.filename for info in infos}
        if len(names) < len(infos):
            raise RuntimeError(f"{self.name}: the file is damaged: an entry of the archive comes twice")

    def _read(self, entry: Any, most: int = _MOST_INFLATED) -> bytes:
        info = entry if isinstance(entry, zipfile.ZipInfo) else self._zip.getinfo(entry)
        if info.file_size > info.compress_size and info.file_size > most * info.compress_size + (1 << 16):
            raise RuntimeError(
                f"{self.name}: {info.filename} claims {info.file_size} bytes, packed in {info.compress_size}; "
                "the file is damaged"
            )
        try:
            return self._zip.read(entry)
        except (zipfile.BadZipFile, NotImplementedError, zlib.error, EOFError) as e:
            raise RuntimeError(f"{self.name}: the file is damaged: {e}") from None

    def pickled(self) -> bytes:
        return self._read(self.folder + "data.pkl", _MOST_INFLATED_PICKLE)

    def storage(self, key: str, size: int) -> Tensor:
        """The ``size`` bytes of a storage as uint8."""
        try:
            info = self._zip.getinfo(f"{self.folder}data/{key}")
        except KeyError:
            raise RuntimeError(f"{self.name}: storage {key!r} is not in the archive") from None
        if info.file_size < size or size < 0:
            raise RuntimeError(
                f"{self.name}: storage {key!r} has {info.file_size} bytes, the pickle says {size}; the file is damaged"
            )
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
            return _io.over_buffer(bytearray(self._read(info)), athanor.uint8, [size])
        begin = self._begin_of(info)
        if self._mapping is not None:
            return _io.over_buffer(self._mapping, athanor.uint8, [size], begin)
        if begin + info.file_size > self._file.seek(0, os.SEEK_END):
            raise RuntimeError(f"{self.name}: storage {key!r} is cut off; the file is damaged")
        t = athanor.empty(info.file_size, dtype=athanor.uint8)
        memory = _io.storage_memory(t)[: info.file_size]
        self._file.seek(begin)
        done = 0
        while done < len(memory):
            n = self._file.readinto(memory[done:])
            if not n:
                raise RuntimeError(f"{self.name}: storage {key!r} is cut off; the file is damaged")
            done += n
        if zlib.crc32(memory) != info.CRC:
            raise RuntimeError(f"{self.name}: the checksum of storage {key!r} is wrong; the file is damaged")
        return t

    def _begin_of(self, info: zipfile.ZipInfo) -> int:
        self._file.seek(info.header_offset)
        header = self._file.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise RuntimeError(f"{self.name}: no local header of {info.filename}; the file is damaged")
        name_size, extra_size = struct.unpack_from("<HH", header, 26)
        return info.header_offset + 30 + name_size + extra_size


def load(
    f: Union[str, "os.PathLike[str]", BinaryIO],
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: Optional[bool] = None,
    mmap: Optional[bool] = None,
    **pickle_load_args: Any,
) -> Any:
    """What :func:`save` or PyTorch's torch.save wrote.

    Args:
        f: a path, or a file open for reading that can seek.
        map_location: where tensors shall be: a device, a dict of saved to wanted locations, or a function of storage and
            location. Tensors lie where they were saved from unless given.
        weights_only: False lets the file name any class, which may run any code; only for files that you trust.
        mmap: True maps the file; its values are read when they are touched.

    Raises:
        pickle.UnpicklingError: the file names something else than tensors and plain containers need.
        RuntimeError: a damaged file, or one of another kind.
        FileNotFoundError: no such file.
    """
    if isinstance(f, (str, bytes, os.PathLike)):
        with open(f, "rb") as file:
            return _load(file, repr(os.fspath(f)), map_location, weights_only, bool(mmap), pickle_load_args)
    if mmap:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not (hasattr(f, "read") and hasattr(f, "seek")):
        raise AttributeError(
            f"'{type(f).__name__}' object has no attribute 'seek'. You can only load from a file that is seekable. "
            "Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    if not hasattr(f, "readinto") or f.tell() != 0:
        f = io.BytesIO(f.read())
    return _load(f, "the file", map_location, weights_only, False, pickle_load_args)


def _load(file: Any, name: str, map_location: Any, weights_only: Optional[bool], mapped: bool, args: Dict) -> Any:
    archive = _Archive(file, name, mapped)
    place = _placement(map_location)
    bases: Dict[str, Tensor] = {}

    def storage(dtype: Any, key: str, location: str, numel: int) -> LoadedStorage:
        size = athanor.empty(0, dtype=dtype).element_size()
        if key not in bases:
            bases[key] = archive.storage(key, numel * size)
        return LoadedStorage(bases[key], dtype, place(location))

    # Texts of Python 2 are read as UTF-8, as PyTorch does.
    args.setdefault("encoding", "utf-8")
    pickled = archive.pickled()
    try:
        return unpickle(pickled, storage, trusted=weights_only is False, **args)
    except pickle.UnpicklingError as e:
        raise pickle.UnpicklingError(f"{name}: {e}") from None
    except RecursionError as e:  # which is a RuntimeError
        raise pickle.UnpicklingError(f"{name}: malformed pickle: values within values too deep") from e
    except (RuntimeError, OSError, MemoryError):
        raise
    except Exception as e:  # a pickle that was damaged, or made to confuse, fails anywhere
        if weights_only is False:
            raise
        raise pickle.UnpicklingError(f"{name}: malformed pickle: {e}") from e


# Pickling.


def _is_dense(t: Tensor) -> bool:
    """Whether the elements fill one piece of memory, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _reduce_tensor(self: Tensor, protocol: int) -> Any:
    """Tensor.__reduce_ex__: the values, class, device, attributes and whether a gradient is wanted."""
    values = self.detach().cpu()
    if not _is_dense(values):
        values = values.contiguous()
    size = values.element_size()
    start = values.storage_offset() * size
    memory = _io.storage_memory(values)[start : start + values.numel() * size]
    content: Any = pickle.PickleBuffer(memory) if protocol >= 5 and len(memory) else bytes(memory)
    device = None if self.device.type == "cpu" else str(self.device)
    geometry = (tuple(values.shape), tuple(values.stride()))
    args = (content, _dtype_name(values.dtype), *geometry, self.requires_grad, type(self), device)
    state = getattr(self, "__dict__", None)
    return (_restore_tensor, args, dict(state)) if state else (_restore_tensor, args)


def _restore_tensor(
    content: Any, name: str, shape: tuple, strides: tuple, requires_grad: bool, kind: type, device: Any
) -> Tensor:
    dtype = getattr(athanor, name)
    if len(content) == 0:
        t = athanor.empty(shape, dtype=dtype)
    else:
        if memoryview(content).readonly:
            content = bytearray(content)
        base = _io.over_buffer(content, athanor.uint8, [len(content)])
        t = _io.share_storage(base, dtype, 0, list(shape), list(strides))
    if device is not None:
        t = t.to(device)
    if kind is not Tensor:
        return Tensor._make_subclass(kind, t, requires_grad)
    return t.requires_grad_() if requires_grad else t
