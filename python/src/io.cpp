/// `athanor._C._io`: storages as memory and tensors on memory, for pickles, files and shared memory; safetensors.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "athanor/io/file.h"
#include "athanor/io/safetensors.h"
#include "athanor/io/summary_writer.h"
#include "athanor/io/tensor_io.h"
#include "athanor/tensor/external.h"
#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

using Sizes = std::vector<std::int64_t>;

/// How many elements from the storage's beginning a tensor needs. Throws ValueError for what no tensor can have.
std::int64_t reach_of(std::int64_t offset, const Sizes& sizes, const Sizes& strides) {
  ATHANOR_CHECK_VALUE(sizes.size() == strides.size() && sizes.size() <= 64, "a tensor with ", sizes.size(),
                      " sizes and ", strides.size(), " strides");
  bool fits = offset >= 0, empty = false;
  std::int64_t last = offset;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::int64_t reach = 0;
    fits = fits && sizes[d] >= 0 && strides[d] >= 0;
    empty = empty || sizes[d] == 0;
    fits = fits && (sizes[d] == 0 || (!__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) &&
                                      !__builtin_add_overflow(last, reach, &last)));
  }
  ATHANOR_CHECK_VALUE(fits, "a tensor of sizes ", IntArrayRef(sizes), " and strides ", IntArrayRef(strides), " at ",
                      offset, " has no place in memory");
  return empty ? offset : last + 1;
}

Sizes row_major(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;)
    if (__builtin_mul_overflow(strides[d], std::max<std::int64_t>(sizes[d], 1), &strides[d - 1]))
      ATHANOR_THROW(ValueError, "sizes ", IntArrayRef(sizes), " are beyond 2^63 elements");
  return strides;
}

Tensor share_storage(const Tensor& base, DType dtype, std::int64_t offset, const Sizes& sizes, const Sizes& strides) {
  ATHANOR_CHECK_VALUE(base.defined(), "expected a tensor whose storage is to be shared, got None");
  const std::int64_t wanted = reach_of(offset, sizes, strides);
  const auto there = static_cast<std::int64_t>(base.storage()->nbytes() / item_size(dtype));
  ATHANOR_CHECK_VALUE(wanted <= there, "a tensor of sizes ", IntArrayRef(sizes), " and strides ", IntArrayRef(strides),
                      " at ", offset, " passes the end of its storage of ", there, " elements");
  auto impl = athanor::detail::new_tensor_impl();
  impl->dtype = dtype;
  impl->device = base.device();
  impl->storage = base.storage();
  impl->storage_offset = offset;
  impl->set_geometry(sizes, strides);
  return Tensor{TensorBase(std::move(impl))};
}

/// A tensor on an object's memory, which it keeps alive and may write to.
Tensor over_buffer(const nb::object& object, DType dtype, const Sizes& sizes, std::int64_t offset_bytes) {
  PyObject* held = PyMemoryView_FromObject(object.ptr());
  if (!held) throw nb::python_error();
  const nb::object view = nb::steal(held);
  const Py_buffer& buffer = *PyMemoryView_GET_BUFFER(held);
  ATHANOR_CHECK_VALUE(!buffer.readonly, "a tensor needs memory that can be written to");
  const Sizes strides = row_major(sizes);
  const std::int64_t items = reach_of(0, sizes, strides);
  ATHANOR_CHECK_VALUE(PyBuffer_IsContiguous(&buffer, 'C') && offset_bytes >= 0 && offset_bytes <= buffer.len &&
                          items <= (buffer.len - offset_bytes) / static_cast<std::int64_t>(item_size(dtype)),
                      "a tensor of sizes ", IntArrayRef(sizes), " passes the end of its buffer of ", buffer.len,
                      " bytes");
  if (items == 0) return Tensor(empty(sizes, TensorOptions(dtype)));
  Tensor t(athanor::detail::external_tensor("from_buffer", static_cast<char*>(buffer.buf) + offset_bytes, sizes,
                                            strides, dtype, [held](void*) { release_later(held); }));
  Py_INCREF(held);
  return t;
}

/// A file mapped and shared, for as long as tensors lie in it; the descriptor is not kept.
class SharedMapping {
 public:
  SharedMapping(int descriptor, std::size_t size)
      : memory_(map(descriptor, size), [size](void* data) { ::munmap(data, size); }), size_(size) {}

  Tensor tensor(DType dtype, const Sizes& sizes, std::int64_t offset) const {
    const Sizes strides = row_major(sizes);
    const std::int64_t items = reach_of(0, sizes, strides);
    const auto left = static_cast<std::int64_t>(size_) - offset;
    ATHANOR_CHECK_VALUE(offset >= 0 && left >= 0 && items <= left / static_cast<std::int64_t>(item_size(dtype)),
                        "a tensor of sizes ", IntArrayRef(sizes), " at ", offset, " passes the end of a mapping of ",
                        size_, " bytes");
    if (items == 0) return empty(sizes, TensorOptions(dtype));
    return Tensor(athanor::detail::external_tensor("shared memory", static_cast<char*>(memory_.get()) + offset, sizes,
                                                   strides, dtype, [memory = memory_](void*) {}));
  }

 private:
  static void* map(int descriptor, std::size_t size) {
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    ATHANOR_CHECK_TYPE(IoError, data != MAP_FAILED, "cannot map ", size,
                       " bytes of shared memory: ", std::generic_category().message(errno));
    return data;
  }
  std::shared_ptr<void> memory_;
  std::size_t size_;
};

/// The whole of a storage on the host, for as long as the tensor lives.
nb::object storage_memory(const Tensor& t) {
  ATHANOR_CHECK_VALUE(t.device().is_host(), "expected a tensor on the host, got one on ", t.device());
  if (t.storage()->nbytes() == 0) return nb::steal(PyMemoryView_FromMemory(const_cast<char*>(""), 0, PyBUF_READ));
  t.data_ptr();
  auto* data = static_cast<char*>(t.storage()->data());
  return nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(t.storage()->nbytes()), PyBUF_WRITE));
}

nb::tuple storage_id(const Tensor& t) {
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(t.storage().get()), t.storage()->nbytes());
}

nb::tuple load_safetensors(const std::string& path, bool mapped) {
  io::Metadata metadata;
  io::NamedTensors tensors;
  {
    const Unlocked unlocked;
    tensors = io::load_safetensors(path, &metadata, mapped ? io::Loading::Mapped : io::Loading::Copied);
  }
  return nb::make_tuple(std::move(tensors), std::move(metadata));
}

io::Array as_array(const Tensor& t) { return io::to_array(t, "save"); }

std::vector<std::pair<std::string, io::Array>> as_arrays(const io::NamedTensors& tensors) {
  std::vector<std::pair<std::string, io::Array>> arrays;
  arrays.reserve(tensors.size());
  for (const auto& [name, t] : tensors) arrays.emplace_back(name, as_array(t));
  return arrays;
}

nb::bytes safetensors_bytes(const io::NamedTensors& tensors, const io::Metadata& metadata) {
  std::vector<std::byte> bytes;
  {
    const Unlocked unlocked;
    bytes = io::safetensors_bytes(as_arrays(tensors), metadata);
  }
  return nb::bytes(bytes.data(), bytes.size());
}

nb::tuple parse_safetensors(const nb::bytes& content) {
  // Tensors point into a copy: the bytes object must not change.
  auto copy = std::make_shared<std::vector<std::byte>>(content.size());
  std::memcpy(copy->data(), content.c_str(), content.size());
  const io::SafetensorsFile file(*copy, copy, "safetensors");
  io::NamedTensors tensors;
  for (const auto& entry : file.entries()) tensors.emplace_back(entry.name, io::to_tensor(file.get(entry)));
  return nb::make_tuple(std::move(tensors), file.metadata());
}

}  // namespace

void bind_io(nb::module_& core) {
  nb::module_ m = core.def_submodule("_io", "Memory of tensors and files of them; see athanor.save and athanor.load.");
  m.def("storage_id", &storage_id);
  m.def("storage_memory", &storage_memory);
  m.def("share_storage", &share_storage);
  m.def("over_buffer", &over_buffer, nb::arg("buffer"), nb::arg("dtype"), nb::arg("sizes"), nb::arg("offset") = 0);
  nb::class_<SharedMapping>(m, "SharedMapping")
      .def(nb::init<int, std::size_t>())
      .def("tensor", &SharedMapping::tensor, nb::arg("dtype"), nb::arg("sizes"), nb::arg("offset"));
  m.def("load_safetensors", &load_safetensors, nb::arg("path"), nb::arg("mapped"));
  m.def("save_safetensors", [](const std::string& path, const io::NamedTensors& tensors, const io::Metadata& metadata) {
    const Unlocked unlocked;
    io::save_safetensors(path, tensors, metadata);
  });
  nb::class_<io::SummaryWriter>(m, "SummaryWriter")
      .def(nb::init<const std::string&, const std::string&>())
      .def("add_scalar", &io::SummaryWriter::add_scalar)
      .def("add_scalars", &io::SummaryWriter::add_scalars)
      .def("add_histogram", &io::SummaryWriter::add_histogram)
      .def("add_image", &io::SummaryWriter::add_image)
      .def("add_images", &io::SummaryWriter::add_images)
      .def("add_text", &io::SummaryWriter::add_text)
      .def("flush", &io::SummaryWriter::flush)
      .def("close", &io::SummaryWriter::close);
  nb::class_<io::AtomicFile>(m, "AtomicFile")
      .def("__init__", [](io::AtomicFile* self,
                          const nb::bytes& path) { new (self) io::AtomicFile(std::string(path.c_str(), path.size())); })
      .def("descriptor", &io::AtomicFile::descriptor)
      .def("commit", [](io::AtomicFile& self) {
        const Unlocked unlocked;
        self.commit();
      });
  m.def("safetensors_bytes", &safetensors_bytes);
  m.def("parse_safetensors", &parse_safetensors);
}

}  // namespace athanor::python
