#pragma once
/// Tensors to and from files: safetensors, .npy, IDX. What is written is the values, on the host and row-major,
/// wherever and however the tensor lies; what is read is on the host and requires no gradient. Errors are those of the
/// formats (see their headers): IoError for files, TypeError for dtypes that a format or this library lacks.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "athanor/io/array.h"
#include "athanor/ops/tensor.h"

namespace athanor::io {

/// How a file's values come into memory.
enum class Loading {
  Mapped,  ///< pages load when touched; writes stay private; the file must not be shortened in place meanwhile
  Copied,  ///< all at once, into memory of their own
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

/// The tensors of a safetensors file in the order of their values there.
NamedTensors load_safetensors(const std::string& path, Loading loading = Loading::Mapped);
/// The same with the file's metadata.
NamedTensors load_safetensors(const std::string& path, Metadata* metadata, Loading loading = Loading::Mapped);
/// Writes atomically, as write_safetensors. Tensors that share memory are stored once each. Throws ValueError for an
/// undefined tensor.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// The array of an .npy file; one in Fortran order becomes a transposed view if mapped.
Tensor load_npy(const std::string& path, Loading loading = Loading::Copied);
/// Writes atomically. Throws TypeError for bfloat16.
void save_npy(const std::string& path, const Tensor& tensor);

/// The array of an IDX file, packed or not.
Tensor load_idx(const std::string& path);
/// Writes atomically, packed if `path` ends in ".gz". Throws TypeError for dtypes that IDX lacks.
void save_idx(const std::string& path, const Tensor& tensor);

/// A tensor on the array's memory, which it keeps alive. An array without owner is the caller's to keep.
Tensor to_tensor(const Array& array);
/// The tensor's values as a contiguous array on the host; the tensor's own memory if it is both already. `what` names
/// the caller in errors.
Array to_array(const Tensor& tensor, const char* what);

}  // namespace athanor::io
