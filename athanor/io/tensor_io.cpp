#include "athanor/io/tensor_io.h"

#include <cstring>
#include <memory>

#include "athanor/io/idx.h"
#include "athanor/io/npy.h"
#include "athanor/io/safetensors.h"
#include "athanor/ops/factory.h"

namespace athanor::io {

namespace {

Array copy_of(const Array& array) {
  Array copy = empty_array(array.dtype, array.sizes);
  if (copy.nbytes() > 0) std::memcpy(copy.data, array.data, copy.nbytes());
  return copy;
}

}  // namespace

Tensor to_tensor(const Array& array) {
  std::function<void(void*)> deleter;
  if (array.owner) deleter = [owner = array.owner](void*) mutable { owner.reset(); };
  return from_blob(array.data, array.sizes, array.strides, std::move(deleter), TensorOptions(array.dtype));
}

Array to_array(const Tensor& tensor, const char* what) {
  ATHANOR_CHECK_VALUE(tensor.defined(), what, ": undefined tensor");
  auto kept = std::make_shared<Tensor>(tensor.detach().cpu().contiguous());
  Array array = borrow_array(kept->dtype(), kept->sizes(), kept->numel() > 0 ? kept->data_ptr() : nullptr);
  array.owner = std::move(kept);
  return array;
}

NamedTensors load_safetensors(const std::string& path, Metadata* metadata, Loading loading) {
  const SafetensorsFile file(path);
  NamedTensors tensors;
  tensors.reserve(file.entries().size());
  for (const SafetensorsEntry& entry : file.entries()) {
    const Array array = file.get(entry);
    tensors.emplace_back(entry.name, to_tensor(loading == Loading::Copied ? copy_of(array) : array));
  }
  if (metadata) *metadata = file.metadata();
  return tensors;
}

NamedTensors load_safetensors(const std::string& path, Loading loading) {
  return load_safetensors(path, nullptr, loading);
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<std::pair<std::string, Array>> arrays;
  arrays.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const std::string what = athanor::detail::str("save_safetensors: '", name, "'");
    arrays.emplace_back(name, to_array(tensor, what.c_str()));
  }
  write_safetensors(path, arrays, metadata);
}

Tensor load_npy(const std::string& path, Loading loading) {
  return to_tensor(loading == Loading::Mapped ? map_npy(path) : read_npy(path));
}

void save_npy(const std::string& path, const Tensor& tensor) { write_npy(path, to_array(tensor, "save_npy")); }

Tensor load_idx(const std::string& path) { return to_tensor(read_idx(path)); }

void save_idx(const std::string& path, const Tensor& tensor) { write_idx(path, to_array(tensor, "save_idx")); }

}  // namespace athanor::io
