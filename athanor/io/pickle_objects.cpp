#include "athanor/io/pickle_objects.h"

#include <algorithm>
#include <cstring>

#include "athanor/io/tensor_io.h"
#include "athanor/ops/factory.h"

namespace athanor::io::detail {

namespace {

struct Known {
  std::string_view module, name;
  Callee callee;
};
constexpr Known kKnown[] = {
    {"collections", "OrderedDict", Callee::OrderedDict},
    {"collections", "Counter", Callee::Counter},
    {"builtins", "set", Callee::Set},
    {"builtins", "frozenset", Callee::Set},
    {"__builtin__", "set", Callee::Set},
    {"__builtin__", "frozenset", Callee::Set},
    {"builtins", "bytes", Callee::Bytes},
    {"__builtin__", "bytes", Callee::Bytes},
    {"_codecs", "encode", Callee::Encode},
    {"torch", "Size", Callee::Size},
    {"torch", "device", Callee::Device},
    {"torch.serialization", "_get_layout", Callee::Layout},
    {"torch", "Tensor", Callee::TensorType},
    {"torch.nn.parameter", "Parameter", Callee::TensorType},
    {"torch.nn.parameter", "Buffer", Callee::TensorType},
    {"torch._utils", "_rebuild_tensor", Callee::RebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", Callee::RebuildTensor},
    {"torch._utils", "_rebuild_tensor_v3", Callee::RebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", Callee::RebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Callee::RebuildParameter},
    {"torch._tensor", "_rebuild_from_type_v2", Callee::RebuildFromType},
    {"numpy.core.multiarray", "_reconstruct", Callee::NumpyReconstruct},
    {"numpy._core.multiarray", "_reconstruct", Callee::NumpyReconstruct},
    {"numpy.core.multiarray", "scalar", Callee::NumpyScalar},
    {"numpy._core.multiarray", "scalar", Callee::NumpyScalar},
    {"numpy", "ndarray", Callee::NumpyArray},
    {"numpy", "dtype", Callee::NumpyDtype},
};

struct StorageName {
  std::string_view name, dtype;
};
constexpr StorageName kStorages[] = {
    {"FloatStorage", "float32"},
    {"DoubleStorage", "float64"},
    {"HalfStorage", "float16"},
    {"BFloat16Storage", "bfloat16"},
    {"LongStorage", "int64"},
    {"IntStorage", "int32"},
    {"ShortStorage", "int16"},
    {"CharStorage", "int8"},
    {"ByteStorage", "uint8"},
    {"BoolStorage", "bool"},
    {"UntypedStorage", ""},
    {"ComplexFloatStorage", "complex64"},
    {"ComplexDoubleStorage", "complex128"},
    {"QUInt8Storage", "quint8"},
    {"QInt8Storage", "qint8"},
    {"QInt32Storage", "qint32"},
};

constexpr std::string_view kDTypes[] = {
    "float32",    "float64",   "float16",       "bfloat16",    "int64",           "int32",           "int16",
    "int8",       "uint8",     "bool",          "uint16",      "uint32",          "uint64",          "complex64",
    "complex128", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"};

IValue object(std::shared_ptr<athanor::detail::PickleObject> o) { return IValueAccess::object(std::move(o)); }

bool is_known_storage(std::string_view module) {
  return module == "torch" || module == "torch.cuda" || module == "torch.storage";
}

}  // namespace

IValue PickleObjects::global(std::string_view module, std::string_view name) const {
  auto g = std::make_shared<Global>();
  g->name = athanor::detail::str(module, ".", name);
  for (const Known& known : kKnown)
    if (known.module == module && known.name == name) {
      g->callee = known.callee;
      return object(std::move(g));
    }
  const auto* storage = std::ranges::find(kStorages, name, &StorageName::name);
  if (is_known_storage(module) && storage != std::end(kStorages)) {
    g->callee = Callee::StorageType;
    g->dtype = storage->dtype;
    return object(std::move(g));
  }
  const auto* dtype = std::ranges::find(kDTypes, name);
  if (module == "torch" && dtype != std::end(kDTypes)) {
    g->callee = Callee::DTypeName;
    g->dtype = *dtype;
    return object(std::move(g));
  }
  fail(
      "the pickle asks for ", g->name.substr(0, 200),
      ", which is not among what tensors and state_dicts need; nothing of it was run. In Python, save the state_dict() "
      "or plain tensors, numbers and texts instead");
}

IValue PickleObjects::persistent(const IValue& id) const {
  const auto* parts = IValueAccess::items(id);
  want(parts && id.isTuple() && parts->size() >= 5 && (*parts)[0].isString() &&
           (*parts)[0].toStringRef() == "storage" && (*parts)[2].isString() && (*parts)[4].isInt(),
       "a reference to something that is no storage");
  const Global* type = IValueAccess::as<Global>((*parts)[1]);
  want(type && type->callee == Callee::StorageType, "a storage without a type");
  want((*parts)[4].toInt() >= 0, "a storage of negative size");
  if (!storages_) fail("the pickle refers to tensors, which are not in it");
  auto ref = std::make_shared<StorageRef>();
  ref->key = (*parts)[2].toStringRef();
  ref->dtype = type->dtype;
  ref->numel = (*parts)[4].toInt();
  return object(std::move(ref));
}

IValue PickleObjects::call(const IValue& function, const IValue& arguments) {
  const Global* g = IValueAccess::as<Global>(function);
  want(g && arguments.isTuple(), "a call of something that is no function");
  return call(*g, arguments.elements(), 0);
}

IValue PickleObjects::call(const Global& g, const Arguments& a, int depth) {
  switch (g.callee) {
    case Callee::OrderedDict:
    case Callee::Counter:
      return dict_of(a);
    case Callee::Set:
      want(a.size() <= 1 && (a.empty() || a[0].isList()), "a set of something that is no list");
      return a.empty() ? IValue(std::vector<IValue>()) : a[0];
    case Callee::Bytes:
      want(a.empty(), "bytes of something");
      return "";
    case Callee::Encode: {
      want(a.size() == 2 && a[0].isString() && a[1].isString() &&
               (a[1].toStringRef() == "latin1" || a[1].toStringRef() == "latin-1"),
           "text encoded otherwise than as Latin 1");
      count_copied(a[0].toStringRef().size());
      std::string bytes;
      const std::string& text = a[0].toStringRef();
      for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c < 0x80) {
          bytes += text[i];
          continue;
        }
        const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
        want((c & 0xfc) == 0xc0 && (next & 0xc0) == 0x80, "text that Latin 1 lacks");
        bytes += static_cast<char>((c & 3) << 6 | (next & 0x3f));
        ++i;
      }
      return bytes;
    }
    case Callee::Size:
      want(a.size() == 1 && a[0].isTuple(), "a size of something that is no tuple");
      return a[0];
    case Callee::Device:
      want(!a.empty() && a.size() <= 2 && a[0].isString() && a[0].toStringRef().size() < 64 &&
               (a.size() == 1 || a[1].isInt()),
           "a device without a name");
      return a.size() == 1 ? a[0] : IValue(a[0].toStringRef() + ":" + std::to_string(a[1].toInt()));
    case Callee::Layout:
      want(a.size() == 1 && a[0].isString(), "a layout without a name");
      return a[0];
    case Callee::RebuildTensor:
      want(!a.empty() && IValueAccess::as<StorageRef>(a[0]), "a tensor without a storage");
      want(a.size() == 4 || a.size() == 6 || (a.size() == 7 && a[6].isGenericDict() && a[6].toGenericDict().empty()),
           "a tensor with conjugate or negative bits, or of another number of arguments");
      return rebuild_tensor(a, IValueAccess::as<StorageRef>(a[0])->dtype);
    case Callee::RebuildTensorV3: {
      want(a.size() >= 7 && IValueAccess::as<Global>(a[6]) &&
               IValueAccess::as<Global>(a[6])->callee == Callee::DTypeName,
           "a tensor without a dtype");
      return rebuild_tensor(a, IValueAccess::as<Global>(a[6])->dtype);
    }
    case Callee::RebuildParameter: {
      want(a.size() >= 2 && a[0].isTensor() && a[1].isBool(), "a parameter without a tensor");
      Tensor t = a[0].toTensor().detach();
      want(!a[1].toBool() || t.is_floating_point(), "a gradient asked for of integers");
      return t.requires_grad_(a[1].toBool());
    }
    case Callee::RebuildFromType: {
      const Global* inner = a.size() == 4 ? IValueAccess::as<Global>(a[0]) : nullptr;
      const Global* type = inner ? IValueAccess::as<Global>(a[1]) : nullptr;
      want(type && type->callee == Callee::TensorType && a[2].isTuple() && depth == 0,
           "a tensor of a class of its own");
      return call(*inner, a[2].elements(), 1);
    }
    case Callee::NumpyReconstruct:
      return object(std::make_shared<NumpyArray>());
    case Callee::NumpyDtype:
      return numpy_dtype(a);
    case Callee::NumpyScalar:
      return numpy_scalar(a);
    case Callee::StorageType:
    case Callee::DTypeName:
    case Callee::TensorType:
    case Callee::NumpyArray:
      break;
  }
  fail("the pickle calls ", g.name, ", which is a type; nothing of it was run");
}

void PickleObjects::check_key(const IValue& key) const {
  want(key.isString() || key.isInt() || key.isBool() || key.isDouble() || key.isNone(),
       "a key that is no text, number or None");
  want(!key.isString() || key.toStringRef().size() <= 4096, "a key of more than 4096 bytes");
}

IValue PickleObjects::dict_of(const Arguments& a) {
  want(a.size() <= 1, "a dict of several things");
  if (a.empty()) return GenericDict();
  if (a[0].isGenericDict()) return a[0];
  want(a[0].isList() || a[0].isTuple(), "a dict of something that is no list");
  GenericDict dict;
  count_copied(a[0].elements().size());
  for (const IValue& pair : a[0].elements()) {
    const auto* items = IValueAccess::items(pair);
    want(items && items->size() == 2, "a dict of something that is no pairs");
    check_key((*items)[0]);
    dict.insert_or_assign((*items)[0], (*items)[1]);
  }
  return dict;
}

DType PickleObjects::dtype_named(const std::string& name) const {
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == dtype_name(static_cast<DType>(i))) return static_cast<DType>(i);
  ATHANOR_THROW(TypeError, name_, ": a tensor has dtype ", name.empty() ? "(none)" : name,
                ", which this library lacks; convert the file in Python first");
}

// (storage, offset, sizes, strides, requires_grad, hooks, …)
Tensor PickleObjects::rebuild_tensor(const Arguments& a, const std::string& dtype_text) {
  const auto* ref = a.empty() ? nullptr : IValueAccess::as<StorageRef>(a[0]);
  want(ref && a[1].isInt() && a[2].isTuple() && a[3].isTuple() && a[2].elements().size() == a[3].elements().size() &&
           a[2].elements().size() <= 64,
       "a tensor without storage, offset, sizes or strides");
  DimVector sizes, strides;
  const std::int64_t offset = a[1].toInt();
  std::int64_t last = offset;
  bool empty = false, fits = offset >= 0;
  for (std::size_t d = 0; d < a[2].elements().size(); ++d) {
    const IValue &size = a[2].elements()[d], &stride = a[3].elements()[d];
    want(size.isInt() && stride.isInt() && size.toInt() >= 0 && stride.toInt() >= 0,
         "sizes or strides that are negative or no integers");
    sizes.push_back(size.toInt());
    strides.push_back(stride.toInt());
    empty = empty || sizes.back() == 0;
    std::int64_t reach = 0;
    fits = fits && (sizes.back() == 0 || (!__builtin_mul_overflow(sizes.back() - 1, strides.back(), &reach) &&
                                          !__builtin_add_overflow(last, reach, &last)));
  }
  const DType dtype = dtype_named(dtype_text);
  const Tensor base = storage_tensor(*ref, dtype);
  if (!fits || (empty ? offset > base.numel() : last >= base.numel()))
    fail("a tensor of sizes ", IntArrayRef(sizes), " and strides ", IntArrayRef(strides), " at ", offset,
         " passes the end of its storage of ", base.numel());
  std::uint64_t ignored = 0;
  want(empty ? dense_bytes(sizes, 1, &ignored) : true, "sizes of a tensor without elements beyond 2^63");
  auto impl = athanor::detail::new_tensor_impl();
  impl->dtype = dtype;
  impl->storage = base.storage();
  impl->storage_offset = offset;
  impl->set_geometry(sizes, strides);
  Tensor t{TensorBase(std::move(impl))};
  if (a.size() > 4 && a[4].isBool() && a[4].toBool()) {
    want(t.is_floating_point(), "a gradient asked for of integers");
    t.requires_grad_();
  }
  return t;
}

// One tensor stands for a storage, so that tensors which shared memory share it again.
Tensor PickleObjects::storage_tensor(const StorageRef& ref, DType dtype) {
  const auto found = bases_.find({ref.key, dtype});
  if (found != bases_.end()) return found->second;
  const std::size_t item = item_size(dtype);
  const bool untyped = ref.dtype.empty();
  const std::string what = athanor::detail::str(name_, ": storage '", ref.key.substr(0, 200), "'");
  const StorageBytes bytes = storages_(ref.key, item);
  const auto claimed = static_cast<std::uint64_t>(ref.numel);
  const std::uint64_t present = bytes.size / (untyped ? 1 : item);
  if (claimed > present)
    fail("storage '", ref.key.substr(0, 200), "' should have ", claimed, untyped ? " bytes" : " elements",
         ", the file holds ", present);
  const auto numel = static_cast<std::int64_t>(untyped ? claimed / item : claimed);
  Array array{dtype, {numel}, {1}, bytes.data, bytes.owner};
  if (reinterpret_cast<std::uintptr_t>(bytes.data) % item != 0) {
    array = empty_array(dtype, {numel});
    if (numel > 0) std::memcpy(array.data, bytes.data, array.nbytes());
  }
  if (dtype == DType::Bool) check_bools(array, what);
  return bases_.emplace(std::pair(ref.key, dtype), to_tensor(array)).first->second;
}

IValue PickleObjects::numpy_dtype(const Arguments& a) const {
  struct Name {
    std::string_view numpy;
    DType dtype;
  };
  static constexpr Name kNames[] = {{"f4", DType::Float}, {"f8", DType::Double}, {"f2", DType::Half},
                                    {"i8", DType::Long},  {"i4", DType::Int},    {"i2", DType::Short},
                                    {"i1", DType::Char},  {"u1", DType::Byte},   {"b1", DType::Bool}};
  want(!a.empty() && a[0].isString(), "a NumPy dtype without a name");
  const auto* known = std::ranges::find(kNames, std::string_view(a[0].toStringRef()), &Name::numpy);
  ATHANOR_CHECK_TYPE(TypeError, known != std::end(kNames), name_, ": NumPy dtype '", a[0].toStringRef().substr(0, 60),
                     "' has no counterpart in this library");
  auto dtype = std::make_shared<NumpyDtype>();
  dtype->dtype = known->dtype;
  return object(std::move(dtype));
}

void PickleObjects::count_copied(std::size_t bytes) {
  copied_ += bytes;
  want(bytes <= pickle_bytes_ && copied_ <= 2 * pickle_bytes_, "bytes used again and again");
}

Tensor PickleObjects::tensor_of_bytes(const NumpyDtype& dtype, IntArrayRef sizes, bool fortran,
                                      const std::string& bytes) {
  std::uint64_t needed = 0;
  const std::size_t item = item_size(dtype.dtype);
  want(dense_bytes(sizes, item, &needed) && needed == bytes.size(), "a NumPy array whose shape does not fit its bytes");
  count_copied(bytes.size());
  Array array = empty_array(dtype.dtype, sizes);
  if (needed > 0) std::memcpy(array.data, bytes.data(), bytes.size());
  if (dtype.swapped) swap_bytes(array.data, bytes.size() / item, item);
  if (dtype.dtype == DType::Bool) check_bools(array, name_);
  if (fortran) {
    std::int64_t stride = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      array.strides[d] = stride;
      stride *= std::max<std::int64_t>(1, sizes[d]);
    }
  }
  return to_tensor(array);
}

IValue PickleObjects::numpy_scalar(const Arguments& a) {
  const auto* dtype = a.empty() ? nullptr : IValueAccess::as<NumpyDtype>(a[0]);
  want(dtype && a.size() == 2 && a[1].isString(), "a NumPy number without dtype or bytes");
  const Tensor t = tensor_of_bytes(*dtype, {}, false, a[1].toStringRef());
  if (t.dtype() == DType::Bool) return t.item<bool>();
  return t.is_floating_point() ? IValue(t.item<double>()) : IValue(t.item<std::int64_t>());
}

// (version, shape, dtype, is Fortran's order, bytes)
void PickleObjects::build_array(NumpyArray& array, const Arguments& state) {
  const auto* dtype = state.size() == 5 ? IValueAccess::as<NumpyDtype>(state[2]) : nullptr;
  want(dtype && state[1].isTuple() && state[1].elements().size() <= 64 && (state[3].isBool() || state[3].isInt()) &&
           state[4].isString(),
       "a NumPy array of another form");
  DimVector sizes;
  for (const IValue& size : state[1].elements()) {
    want(size.isInt() && size.toInt() >= 0, "a NumPy array with a size that is none");
    sizes.push_back(size.toInt());
  }
  const bool fortran = state[3].isBool() ? state[3].toBool() : state[3].toInt() != 0;
  array.tensor = tensor_of_bytes(*dtype, sizes, fortran, state[4].toStringRef());
}

void PickleObjects::build(const IValue& target, const IValue& state) {
  // Attributes of dicts (the versions of a state_dict's modules) and of tensors have no place here.
  if (target.isGenericDict() || target.isTensor()) return;
  if (auto* array = IValueAccess::as<NumpyArray>(target)) {
    want(state.isTuple(), "a NumPy array of another form");
    return build_array(*array, state.elements());
  }
  if (auto* dtype = IValueAccess::as<NumpyDtype>(target)) {
    want(state.isTuple() && state.elements().size() >= 2 && state[1].isString(), "a NumPy dtype of another form");
    dtype->swapped = state[1].toStringRef() == ">";
    return;
  }
  fail("malformed pickle: a state for something that has none (", target.tagKind(), ")");
}

}  // namespace athanor::io::detail
