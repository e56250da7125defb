// Methods and properties of Tensor that are not ops.

#include <nanobind/nanobind.h>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/history.h"
#include "athanor/tensor/print.h"
#include "python/src/autograd.h"
#include "python/src/methods.h"
#include "python/src/types.h"

namespace athanor::python {

PrintOptions print_options;

namespace {

template <class F>
PyObject* guarded(F&& f) {
  try {
    return f();
  } catch (...) {
    return raise_current();
  }
}

bool is_plain_host(const Tensor& t) { return t.device().is_host(); }

Tensor on_host(const Tensor& t) {
  const Unlocked unlocked(takes_long(t));
  return t.detach().to(TensorOptions(Device()));
}

// The values as nested lists.
PyObject* nested(const View& v, int dim, const char* at) {
  if (dim == v.ndim) {
    switch (v.dtype) {
#define ATHANOR_ITEM(type, name) \
  case DType::name:              \
    return to_python(Scalar(*reinterpret_cast<const type*>(at)));
      ATHANOR_FORALL_DTYPES(ATHANOR_ITEM)
#undef ATHANOR_ITEM
      default:
        return nullptr;
    }
  }
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(v.sizes[dim]));
  if (!list) return nullptr;
  for (std::int64_t i = 0; i < v.sizes[dim]; ++i) {
    PyObject* item = nested(v, dim + 1, at + i * v.strides[dim] * static_cast<std::int64_t>(item_size(v.dtype)));
    if (!item) return Py_DECREF(list), nullptr;
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
  }
  return list;
}

PyObject* to_list(PyObject* const* v) {
  const Tensor host = on_host(to_tensor(v[0]));
  const View view = athanor::detail::view_of(host);
  return nested(view, 0, static_cast<const char*>(view.data));
}

PyObject* item(PyObject* const* v) {
  const Tensor& t = to_tensor(v[0]);
  ATHANOR_CHECK(t.numel() == 1, "a Tensor with ", t.numel(), " elements cannot be converted to Scalar");
  Scalar s;
  {
    const Unlocked unlocked(!is_plain_host(t));
    s = t.item();
  }
  return to_python(s);
}

PyObject* size(PyObject* const* v) {
  const Tensor& t = to_tensor(v[0]);
  return given(v[1]) ? to_python(t.size(to_int(v[1]))) : size_object(t.sizes());
}

PyObject* stride(PyObject* const* v) {
  const Tensor& t = to_tensor(v[0]);
  if (given(v[1])) return to_python(t.stride(to_int(v[1])));
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(t.dim()));
  for (std::int64_t i = 0; i < t.dim(); ++i)
    PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(t.strides()[static_cast<std::size_t>(i)]));
  return tuple;
}

PyObject* convert(const Tensor& t, std::optional<DType> dtype, std::optional<Device> device, bool copy,
                  std::optional<MemoryFormat> format) {
  TensorOptions o;
  if (dtype) o = o.dtype(*dtype);
  if (device) o = o.device(*device);
  return run(takes_long(t) || (device && !device->is_host()), [&] { return t.to(o, false, copy, format); });
}

// to(dtype), to(device, dtype), to(tensor), all with non_blocking, copy, memory_format.
PyObject* to_dtype_first(PyObject* const* v) {
  return convert(to_tensor(v[0]), to_optional<DType>(v[1], to_dtype), std::nullopt, v[3] && to_bool(v[3]),
                 to_optional<MemoryFormat>(v[4], to_memory_format));
}
PyObject* to_device_first(PyObject* const* v) {
  return convert(to_tensor(v[0]), to_optional<DType>(v[2], to_dtype), to_optional<Device>(v[1], to_device),
                 v[4] && to_bool(v[4]), to_optional<MemoryFormat>(v[5], to_memory_format));
}
PyObject* to_like(PyObject* const* v) {
  const Tensor& o = to_tensor(v[1]);
  return convert(to_tensor(v[0]), o.scalar_type(), o.device(), v[3] && to_bool(v[3]),
                 to_optional<MemoryFormat>(v[4], to_memory_format));
}

template <DType type>
PyObject* cast_to(PyObject* const* v) {
  return convert(to_tensor(v[0]), type, std::nullopt, false, to_optional<MemoryFormat>(v[1], to_memory_format));
}

PyObject* cpu(PyObject* const* v) { return convert(to_tensor(v[0]), std::nullopt, Device(), false, std::nullopt); }
PyObject* cuda(PyObject* const* v) {
  return convert(to_tensor(v[0]), std::nullopt, given(v[1]) ? to_device(v[1]) : Device(DeviceType::CUDA), false,
                 std::nullopt);
}

PyObject* backward(PyObject* const* v) {
  const Tensor& t = to_tensor(v[0]);
  const Tensor gradient = to_optional_tensor(v[1]);
  const auto retain = to_optional<bool>(v[2], to_bool);
  const bool create = v[3] && to_bool(v[3]);
  std::vector<Tensor> inputs;
  if (given(v[4])) {
    inputs = is_tensor(v[4]) ? std::vector<Tensor>{unwrap(v[4])} : to_tensor_list(v[4]);
    ATHANOR_CHECK(!inputs.empty(), "'inputs' argument to backward() cannot be empty.");
  }
  {
    const Unlocked unlocked(true);
    if (inputs.empty())
      t.backward(gradient, retain, create);
    else
      t.backward(gradient, retain, create, inputs);
  }
  Py_RETURN_NONE;
}

PyObject* requires_grad_(PyObject* const* v) {
  to_tensor(v[0]).set_requires_grad(!v[1] || to_bool(v[1]));
  return Py_NewRef(v[0]);
}

PyObject* register_hook(PyObject* const* v) {
  const Tensor& t = to_tensor(v[0]);
  ATHANOR_CHECK(t.requires_grad(), "cannot register a hook on a tensor that doesn't require gradient");
  return to_python(
      static_cast<std::int64_t>(t.register_hook(std::function<Tensor(const Tensor&)>(PythonCallable(v[1])))));
}
PyObject* register_post_hook(PyObject* const* v) {
  return to_python(static_cast<std::int64_t>(
      to_tensor(v[0]).register_post_accumulate_grad_hook([hook = PythonCallable(v[1])](const Tensor& t) { hook(t); })));
}
PyObject* remove_hook(PyObject* const* v) {
  try {
    to_tensor(v[0]).remove_hook(static_cast<std::uint64_t>(to_int(v[1])));
  } catch (const IndexError&) {
    // A handle may be removed after its graph is gone.
  }
  Py_RETURN_NONE;
}

PyObject* as_subclass(PyObject* const* v) {
  if (!PyType_Check(v[1])) ATHANOR_THROW(TypeError, "as_subclass: expected a class, got ", Py_TYPE(v[1])->tp_name);
  const Tensor& t = to_tensor(v[0]);
  return wrap_as(reinterpret_cast<PyTypeObject*>(v[1]), t.view_as(t));
}
PyObject* make_subclass(PyObject* const* v) {
  if (!PyType_Check(v[0])) ATHANOR_THROW(TypeError, "_make_subclass: expected a class, got ", Py_TYPE(v[0])->tp_name);
  Tensor t = to_tensor(v[1]).detach();
  if (v[2] && to_bool(v[2])) t.requires_grad_();
  return wrap_as(reinterpret_cast<PyTypeObject*>(v[0]), std::move(t));
}

PyObject* set_data(PyObject* const* v) {
  to_tensor(v[0]).set_data(to_tensor(v[1]));
  Py_RETURN_NONE;
}

constexpr Parameter kSelf = {"self", Kind::Tensor, false, true, false};
constexpr Parameter optional(const char* name, Kind kind, bool keyword = false) {
  return {name, kind, true, false, keyword};
}
constexpr Parameter required(const char* name, Kind kind) { return {name, kind, false, true, false}; }
constexpr Parameter kNonBlocking = optional("non_blocking", Kind::Bool), kCopy = optional("copy", Kind::Bool),
                    kFormat = optional("memory_format", Kind::MemoryFormat, true);

constexpr Parameter self_only[] = {kSelf};
constexpr Parameter self_dim[] = {kSelf, optional("dim", Kind::Int)};
constexpr Parameter self_format[] = {kSelf, kFormat};
constexpr Parameter to_1[] = {kSelf, required("dtype", Kind::Dtype), kNonBlocking, kCopy, kFormat};
constexpr Parameter to_2[] = {
    kSelf, optional("device", Kind::Device), optional("dtype", Kind::Dtype), kNonBlocking, kCopy, kFormat};
constexpr Parameter to_3[] = {kSelf, required("other", Kind::Tensor), kNonBlocking, kCopy, kFormat};
constexpr Parameter cuda_p[] = {kSelf, optional("device", Kind::Device), kNonBlocking, kFormat};
constexpr Parameter backward_p[] = {kSelf, optional("gradient", Kind::Tensor), optional("retain_graph", Kind::Bool),
                                    optional("create_graph", Kind::Bool), optional("inputs", Kind::Object)};
constexpr Parameter requires_p[] = {kSelf, optional("requires_grad", Kind::Bool)};
constexpr Parameter hook_p[] = {kSelf, required("hook", Kind::Object)};
constexpr Parameter id_p[] = {kSelf, required("id", Kind::Int)};
constexpr Parameter data_p[] = {kSelf, required("new_data", Kind::Tensor)};

#define ATHANOR_METHOD(id, text, parameters, function) constexpr Signature s_##id[] = {{text, parameters, function}}
constexpr Signature s_to[] = {
    {"(torch.dtype dtype, bool non_blocking=False, bool copy=False, *, torch.memory_format memory_format=None)", to_1,
     to_dtype_first},
    {"(torch.device device=None, torch.dtype dtype=None, bool non_blocking=False, bool copy=False, *, "
     "torch.memory_format memory_format=None)",
     to_2, to_device_first},
    {"(Tensor other, bool non_blocking=False, bool copy=False, *, torch.memory_format memory_format=None)", to_3,
     to_like}};
ATHANOR_METHOD(size, "(int dim=None)", self_dim, size);
ATHANOR_METHOD(stride, "(int dim=None)", self_dim, stride);
ATHANOR_METHOD(item, "()", self_only, item);
ATHANOR_METHOD(tolist, "()", self_only, to_list);
ATHANOR_METHOD(cpu, "(torch.memory_format memory_format=None)", self_format, cpu);
ATHANOR_METHOD(cuda, "(torch.device device=None, bool non_blocking=False, *, torch.memory_format memory_format=None)",
               cuda_p, cuda);
ATHANOR_METHOD(backward, "(Tensor gradient=None, bool retain_graph=None, bool create_graph=False, inputs=None)",
               backward_p, backward);
ATHANOR_METHOD(requires_grad, "(bool requires_grad=True)", requires_p, requires_grad_);
ATHANOR_METHOD(hook, "(callable hook)", hook_p, register_hook);
constexpr Parameter as_subclass_p[] = {kSelf, required("cls", Kind::Object)};
ATHANOR_METHOD(as_subclass, "(type cls)", as_subclass_p, as_subclass);
ATHANOR_METHOD(post_hook, "(callable hook)", hook_p, register_post_hook);
ATHANOR_METHOD(remove_hook, "(int id)", id_p, remove_hook);
ATHANOR_METHOD(set_data, "(Tensor new_data)", data_p, set_data);
#define ATHANOR_SIMPLE(id, expression)                  \
  PyObject* m_##id(PyObject* const* v) {                \
    [[maybe_unused]] const Tensor& t = to_tensor(v[0]); \
    return expression;                                  \
  }                                                     \
  ATHANOR_METHOD(id, "()", self_only, m_##id);
ATHANOR_SIMPLE(dim, to_python(t.dim()))
ATHANOR_SIMPLE(numel, to_python(t.numel()))
ATHANOR_SIMPLE(element_size, to_python(static_cast<std::int64_t>(t.itemsize())))
ATHANOR_SIMPLE(storage_offset, to_python(t.storage_offset()))
ATHANOR_SIMPLE(data_ptr, to_python(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(t.data_ptr()))))
ATHANOR_SIMPLE(is_floating_point, to_python(t.is_floating_point()))
ATHANOR_SIMPLE(is_complex, to_python(false))
ATHANOR_SIMPLE(is_signed, to_python(t.is_signed()))
ATHANOR_SIMPLE(is_inference, to_python(t.is_inference()))
ATHANOR_SIMPLE(retain_grad, (t.retain_grad(), Py_NewRef(Py_None)))
PyObject* m_is_contiguous(PyObject* const* v) {
  return to_python(to_tensor(v[0]).is_contiguous(given(v[1]) ? to_memory_format(v[1]) : MemoryFormat::Contiguous));
}
ATHANOR_METHOD(is_contiguous, "(*, torch.memory_format memory_format=contiguous_format)", self_format, m_is_contiguous);
#define ATHANOR_CAST(id, type) \
  ATHANOR_METHOD(id, "(*, torch.memory_format memory_format=None)", self_format, cast_to<DType::type>)
ATHANOR_CAST(float, Float);
ATHANOR_CAST(double, Double);
ATHANOR_CAST(half, Half);
ATHANOR_CAST(bfloat16, BFloat16);
ATHANOR_CAST(long, Long);
ATHANOR_CAST(int, Int);
ATHANOR_CAST(short, Short);
ATHANOR_CAST(char, Char);
ATHANOR_CAST(byte, Byte);
ATHANOR_CAST(bool, Bool);

const OpEntry method_entries[] = {
    {"to", "The tensor with another dtype or on another device; itself if it has both already.", s_to},
    {"size", "The sizes, or the one along dim.", s_size},
    {"stride", "The strides in elements, or the one along dim.", s_stride},
    {"item", "The value of a one-element tensor as a Python number.", s_item},
    {"tolist", "The values as nested lists.", s_tolist},
    {"cpu", "The tensor on the host.", s_cpu},
    {"cuda", "The tensor on a CUDA device.", s_cuda},
    {"backward", "Adds the gradients of this tensor with respect to the leaves to their grad.", s_backward},
    {"requires_grad_", "Asks for this leaf's gradient, or no longer.", s_requires_grad},
    {"as_subclass", "The same values, recorded as a view, as an object of cls, a subclass of Tensor.", s_as_subclass},
    {"_register_hook", "", s_hook},
    {"_register_post_accumulate_grad_hook", "", s_post_hook},
    {"_remove_hook", "", s_remove_hook},
    {"set_data", "Takes over another tensor's data, keeping identity and autograd state.", s_set_data},
    {"dim", "The number of dimensions.", s_dim},
    {"ndimension", "The number of dimensions.", s_dim},
    {"numel", "The number of elements.", s_numel},
    {"nelement", "The number of elements.", s_numel},
    {"element_size", "Bytes of an element.", s_element_size},
    {"storage_offset", "Where the first element lies in the storage, in elements.", s_storage_offset},
    {"data_ptr", "The address of the first element.", s_data_ptr},
    {"is_floating_point", "True for float16, bfloat16, float32 and float64.", s_is_floating_point},
    {"is_complex", "Always false: there are no complex dtypes.", s_is_complex},
    {"is_signed", "False for uint8 and bool.", s_is_signed},
    {"is_inference", "True if made in inference mode.", s_is_inference},
    {"retain_grad", "Keeps the gradient of this tensor, which is not a leaf, in grad.", s_retain_grad},
    {"is_contiguous", "Whether the elements lie in the order of that memory format without gaps.", s_is_contiguous},
    {"float", "The tensor as float32.", s_float},
    {"double", "The tensor as float64.", s_double},
    {"half", "The tensor as float16.", s_half},
    {"bfloat16", "The tensor as bfloat16.", s_bfloat16},
    {"long", "The tensor as int64.", s_long},
    {"int", "The tensor as int32.", s_int},
    {"short", "The tensor as int16.", s_short},
    {"char", "The tensor as int8.", s_char},
    {"byte", "The tensor as uint8.", s_byte},
    {"bool", "The tensor as bool.", s_bool},
};

// Functions: tensor and its relatives.

// The device that is named; data that is no tensor goes to the default one.
std::optional<Device> device_for_data(PyObject* const* v) {
  return given(v[2]) ? std::optional(to_device(v[2])) : is_tensor(v[0]) ? std::nullopt : default_device();
}
PyObject* tensor_function(PyObject* const* v) {
  ATHANOR_CHECK(given(v[0]), "Could not infer dtype of NoneType");
  if (is_tensor(v[0]) &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                   "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
                   1) < 0)
    throw PythonError();
  Tensor t = tensor_from_data(v[0], to_optional<DType>(v[1], to_dtype), device_for_data(v));
  if (v[3] && to_bool(v[3])) t.requires_grad_();
  return wrap(std::move(t));
}
PyObject* as_tensor(PyObject* const* v) {
  const auto dtype = to_optional<DType>(v[1], to_dtype);
  const auto device = device_for_data(v);
  if (is_tensor(v[0])) {
    const Tensor& t = unwrap(v[0]);
    if (dtype.value_or(t.scalar_type()) == t.scalar_type() && device.value_or(t.device()) == t.device())
      return Py_NewRef(v[0]);
    return convert(t, dtype, device, false, std::nullopt);
  }
  if (has_buffer(v[0])) return convert(tensor_from_buffer(v[0], "as_tensor"), dtype, device, false, std::nullopt);
  return wrap(tensor_from_data(v[0], dtype, device));
}
PyObject* from_numpy(PyObject* const* v) {
  if (!has_buffer(v[0]) || !PySequence_Check(v[0]))  // NumPy's numbers have buffers, too
    ATHANOR_THROW(TypeError, "expected np.ndarray (got ", Py_TYPE(v[0])->tp_name, ")");
  return wrap(tensor_from_buffer(v[0], "from_numpy"));
}
PyObject* from_buffer(PyObject* const* v) { return wrap(tensor_from_buffer(v[0], "from_buffer")); }

constexpr Parameter tensor_p[] = {{"data", Kind::Object, true, true, false},
                                  optional("dtype", Kind::Dtype, true),
                                  optional("device", Kind::Device, true),
                                  optional("requires_grad", Kind::Bool, true),
                                  optional("pin_memory", Kind::Bool, true)};
constexpr Parameter as_tensor_p[] = {required("data", Kind::Object), optional("dtype", Kind::Dtype),
                                     optional("device", Kind::Device)};
constexpr Parameter ndarray_p[] = {required("ndarray", Kind::Object)};
constexpr Parameter subclass_p[] = {required("cls", Kind::Object), required("data", Kind::Tensor),
                                    optional("require_grad", Kind::Bool)};
ATHANOR_METHOD(tensor,
               "(object data, *, torch.dtype dtype=None, torch.device device=None, bool requires_grad=False, bool "
               "pin_memory=False)",
               tensor_p, tensor_function);
ATHANOR_METHOD(as_tensor, "(object data, torch.dtype dtype=None, torch.device device=None)", as_tensor_p, as_tensor);
ATHANOR_METHOD(from_numpy, "(ndarray)", ndarray_p, from_numpy);
ATHANOR_METHOD(from_buffer, "(object)", ndarray_p, from_buffer);
ATHANOR_METHOD(make_subclass, "(type cls, Tensor data, bool require_grad=False)", subclass_p, make_subclass);

const OpEntry function_entries[] = {
    {"tensor", "A new tensor with these values.", s_tensor},
    {"as_tensor", "A tensor of this data, on the same memory where that is possible.", s_as_tensor},
    {"from_numpy", "A tensor on the memory of a NumPy array.", s_from_numpy},
    {"_from_buffer", "A tensor on the memory of an object with the buffer protocol.", s_from_buffer},
    {"_make_subclass", "A tensor object of class cls on the data.", s_make_subclass},
};

// Properties.
template <PyObject* (*get)(const Tensor&)>
PyObject* property(PyObject* self, void*) {
  return guarded([&] { return get(unwrap(self)); });
}

int refuse_delete(PyObject* value, const char* name) {
  if (value) return 0;
  PyErr_Format(PyExc_TypeError, "can't delete %s", name);
  return -1;
}

int set_grad(PyObject* self, PyObject* value, void*) {
  try {
    const Tensor& t = unwrap(self);
    if (!value || value == Py_None) {
      if (athanor::detail::autograd_meta_or_null(t)) t.mutable_grad() = Tensor();
      return 0;
    }
    ATHANOR_CHECK_TYPE(TypeError, is_tensor(value),
                       "assigned grad expected to be a Tensor or None but got grad of type ", Py_TYPE(value)->tp_name);
    const Tensor& g = unwrap(value);
    ATHANOR_CHECK(!g.is_same(t), "can't assign Variable as its own grad");
    ATHANOR_CHECK(g.sizes() == t.sizes(), "assigned grad has data of a different size: expected ", t.sizes(), ", got ",
                  g.sizes());
    ATHANOR_CHECK(g.scalar_type() == t.scalar_type(), "assigned grad has data of a different type: expected ",
                  t.scalar_type(), ", got ", g.scalar_type());
    ATHANOR_CHECK(g.device() == t.device(), "assigned grad has data located on a different device: expected ",
                  t.device(), ", got ", g.device());
    t.mutable_grad() = g;
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

int set_requires_grad_property(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "requires_grad") < 0) return -1;
  if (!PyBool_Check(value)) {
    PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
    return -1;
  }
  try {
    const Tensor& t = unwrap(self);
    const bool on = value == Py_True;
    ATHANOR_CHECK(t.is_leaf() || on,
                  "you can only change requires_grad flags of leaf variables. If you want to use a computed "
                  "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().");
    if (t.is_leaf()) t.set_requires_grad(on);
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

int set_data_property(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "data") < 0) return -1;
  if (!is_tensor(value)) {
    PyErr_Format(PyExc_TypeError, "Variable data has to be a tensor, but got %s", Py_TYPE(value)->tp_name);
    return -1;
  }
  try {
    unwrap(self).set_data(unwrap(value));
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

PyObject* get_shape(const Tensor& t) { return size_object(t.sizes()); }
PyObject* get_dtype(const Tensor& t) { return Py_NewRef(dtype_object(t.scalar_type())); }
PyObject* get_device(const Tensor& t) { return device_object(t.device()); }
PyObject* get_grad(const Tensor& t) {
  // The beginner's question why .grad is None.
  if (const char* why = why_no_grad(t); why && PyErr_WarnEx(PyExc_UserWarning, why, 1) != 0) return nullptr;
  return wrap(grad_of(t));
}
PyObject* get_grad_fn(const Tensor& t) { return node_object(t.grad_fn()); }
PyObject* get_requires_grad(const Tensor& t) { return to_python(t.requires_grad()); }
PyObject* get_is_leaf(const Tensor& t) { return to_python(t.is_leaf()); }
PyObject* get_retains_grad(const Tensor& t) { return to_python(t.retains_grad()); }
PyObject* get_data(const Tensor& t) { return wrap(t.data()); }
PyObject* get_transposed(const Tensor& t) { return wrap(t.T()); }
PyObject* get_matrix_transposed(const Tensor& t) { return wrap(t.dim() == 0 ? t.view(IntArrayRef{}) : t.mT()); }
PyObject* get_adjoint(const Tensor& t) {
  ATHANOR_CHECK(t.dim() == 0 || t.dim() == 2, "tensor.H is only supported on matrices (2-D tensors). Got ", t.dim(),
                "-D tensor.", t.dim() > 2 ? " For batches of matrices, consider using tensor.mH" : "");
  return wrap(t.T());
}
PyObject* get_ndim(const Tensor& t) { return to_python(t.dim()); }
PyObject* get_itemsize(const Tensor& t) { return to_python(static_cast<std::int64_t>(t.itemsize())); }
PyObject* get_nbytes(const Tensor& t) { return to_python(static_cast<std::int64_t>(t.nbytes())); }
PyObject* get_is_cpu(const Tensor& t) { return to_python(t.is_cpu()); }
PyObject* get_is_cuda(const Tensor& t) { return to_python(t.is_cuda()); }
PyObject* get_false(const Tensor&) { return Py_NewRef(Py_False); }
PyObject* get_version(const Tensor& t) { return to_python(static_cast<std::int64_t>(t._version())); }
PyObject* get_output_nr(const Tensor& t) { return to_python(static_cast<std::int64_t>(t.output_nr())); }
PyObject* get_base(const Tensor& t) { return wrap(t._base()); }

std::string device_suffix(const Tensor& t) {
  if (t.is_cuda() && !t.device().has_index()) return "cuda:0";
  return is_plain_host(t) ? "" : t.device().str();
}

}  // namespace

PyObject* tensor_repr(PyObject* self) {
  return guarded([&] {
    const Tensor& t = unwrap(self);
    const Tensor host = on_host(t);
    const std::string device = device_suffix(t);
    PrintSuffixes suffixes;
    std::string node;
    if (const auto fn = t.grad_fn()) {
      node = fn->name();
      suffixes.grad_fn = node;
    }
    suffixes.device = device;
    suffixes.requires_grad = t.requires_grad();
    const std::string text = format_tensor(athanor::detail::view_of(host), print_options, suffixes);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  });
}

Py_hash_t tensor_hash(PyObject* self) {
  const auto h = static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(self) >> 4);
  return h == -1 ? -2 : h;
}

// Tensor(), Tensor(2, 3), Tensor([1, 2]), Tensor(tensor): the old constructor, always of the default dtype.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    if (keywords && PyDict_GET_SIZE(keywords))
      ATHANOR_THROW(TypeError, "Tensor() takes no keyword arguments; use torch.tensor(data, dtype=…, device=…)");
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    Tensor t;
    PyObject* first = n == 1 ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (n == 0) {
      t = athanor::empty({0});
    } else if (first && is_tensor(first)) {
      t = unwrap(first).detach();
    } else if (first && is_size(first)) {
      t = athanor::empty(to_int_list(first));
    } else if (first && !accepts(Kind::Int, first)) {
      ATHANOR_CHECK_TYPE(TypeError, !accepts(Kind::Scalar, first), "new(): data must be a sequence (got ",
                         Py_TYPE(first)->tp_name, ")");
      t = tensor_from_data(first, get_default_dtype(), std::nullopt);
    } else {
      ATHANOR_CHECK_TYPE(TypeError, accepts(Kind::IntList, args),
                         "Tensor() takes sizes as integers, or one sequence of data");
      t = athanor::empty(to_int_list(args));
    }
    return type == tensor_type ? wrap(std::move(t)) : wrap_as(type, std::move(t));
  });
}

PyMethodDef tensor_methods[] = {{nullptr, nullptr, 0, nullptr}};

#define ATHANOR_PROPERTY(name, get, set, doc) \
  { name, property<get>, set, doc, nullptr }
PyGetSetDef tensor_properties[] = {
    ATHANOR_PROPERTY("shape", get_shape, nullptr, "The sizes."),
    ATHANOR_PROPERTY("dtype", get_dtype, nullptr, "The type of the elements."),
    ATHANOR_PROPERTY("device", get_device, nullptr, "Where it lives."),
    ATHANOR_PROPERTY("grad", get_grad, set_grad, "The gradient that backward left, or None."),
    ATHANOR_PROPERTY("grad_fn", get_grad_fn, nullptr, "The call that made it, if that was recorded."),
    ATHANOR_PROPERTY("requires_grad", get_requires_grad, set_requires_grad_property,
                     "Whether gradients flow to or through it."),
    ATHANOR_PROPERTY("is_leaf", get_is_leaf, nullptr, "True unless a recorded call made it."),
    ATHANOR_PROPERTY("retains_grad", get_retains_grad, nullptr, "Whether retain_grad() was called."),
    ATHANOR_PROPERTY("data", get_data, set_data_property, "The same storage outside the graph."),
    ATHANOR_PROPERTY("T", get_transposed, nullptr, "The view with its dimensions reversed."),
    ATHANOR_PROPERTY("mT", get_matrix_transposed, nullptr, "The view with the last two dimensions swapped."),
    ATHANOR_PROPERTY("mH", get_matrix_transposed, nullptr, "mT: numbers are real."),
    ATHANOR_PROPERTY("H", get_adjoint, nullptr, "The transposed matrix."),
    ATHANOR_PROPERTY("ndim", get_ndim, nullptr, "The number of dimensions."),
    ATHANOR_PROPERTY("itemsize", get_itemsize, nullptr, "Bytes of an element."),
    ATHANOR_PROPERTY("nbytes", get_nbytes, nullptr, "Bytes of all elements."),
    ATHANOR_PROPERTY("is_cpu", get_is_cpu, nullptr, "Whether it lives on a CPU device."),
    ATHANOR_PROPERTY("is_cuda", get_is_cuda, nullptr, "Whether it lives on a CUDA device."),
    ATHANOR_PROPERTY("is_sparse", get_false, nullptr, "Always false: there are no sparse tensors."),
    ATHANOR_PROPERTY("is_quantized", get_false, nullptr, "Always false."),
    ATHANOR_PROPERTY("is_meta", get_false, nullptr, "Always false."),
    ATHANOR_PROPERTY("_version", get_version, nullptr, "How often the storage was changed in place."),
    ATHANOR_PROPERTY("output_nr", get_output_nr, nullptr, "Which result of its call it is."),
    ATHANOR_PROPERTY("_base", get_base, nullptr, "What it is a view of, or None."),
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, "Attributes that the program gave it.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

const std::span<const OpEntry> plain_methods = method_entries;
const std::span<const OpEntry> plain_functions = function_entries;

}  // namespace athanor::python
