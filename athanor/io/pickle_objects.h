#pragma once
/// What the names in a pickle mean, as far as this library knows them.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "athanor/io/pickle.h"
#include "athanor/ops/ivalue_access.h"

namespace athanor::io::detail {

/// A function or class that a pickle may call.
enum class Callee {
  OrderedDict,
  Counter,
  Set,
  Bytes,
  Encode,
  Size,
  Device,
  Layout,
  StorageType,
  DTypeName,
  TensorType,
  RebuildTensor,
  RebuildTensorV3,
  RebuildParameter,
  RebuildFromType,
  NumpyReconstruct,
  NumpyArray,
  NumpyDtype,
  NumpyScalar,
};

struct Global : athanor::detail::PickleObject {
  Callee callee = Callee::OrderedDict;
  std::string name;
  std::string dtype;  // PyTorch's name of it, of StorageType and DTypeName; empty for untyped storages
};

struct StorageRef : athanor::detail::PickleObject {
  std::string key;
  std::string dtype;
  std::int64_t numel = 0;
};

struct NumpyDtype : athanor::detail::PickleObject {
  DType dtype = DType::Undefined;
  bool swapped = false;
};

struct NumpyArray : athanor::detail::PickleObject {
  Tensor tensor;  // undefined until its state has been read
};

/// Builds the objects of one pickle. Errors begin with `name`.
class PickleObjects {
 public:
  PickleObjects(std::string name, std::size_t pickle_bytes, const StorageLoader& storages)
      : name_(std::move(name)), pickle_bytes_(pickle_bytes), storages_(storages) {}

  /// Throws IoError for names that are not known.
  IValue global(std::string_view module, std::string_view name) const;
  IValue persistent(const IValue& id) const;
  IValue call(const IValue& function, const IValue& arguments);
  /// Gives an object its state, as BUILD does.
  void build(const IValue& object, const IValue& state);
  /// Throws IoError for what cannot be the key of a dict.
  void check_key(const IValue& key) const;

 private:
  using Arguments = std::vector<IValue>;
  IValue call(const Global& g, const Arguments& a, int depth);
  IValue dict_of(const Arguments& a);
  Tensor rebuild_tensor(const Arguments& a, const std::string& dtype);
  Tensor storage_tensor(const StorageRef& ref, DType dtype);
  IValue numpy_dtype(const Arguments& a) const;
  IValue numpy_scalar(const Arguments& a);
  void build_array(NumpyArray& array, const Arguments& state);
  Tensor tensor_of_bytes(const NumpyDtype& dtype, IntArrayRef sizes, bool fortran, const std::string& bytes);
  /// Counts copies of what the pickle holds once, so that they stay in proportion.
  void count_copied(std::size_t bytes);
  DType dtype_named(const std::string& name) const;
  template <class... Args>
  [[noreturn]] void fail(const Args&... what) const {
    ATHANOR_THROW(IoError, name_, ": ", what...);
  }
  void want(bool condition, const char* what) const {
    if (!condition) fail("malformed pickle: ", what);
  }

  std::string name_;
  std::size_t pickle_bytes_, copied_ = 0;
  const StorageLoader& storages_;
  std::map<std::pair<std::string, DType>, Tensor> bases_;
};

}  // namespace athanor::io::detail
