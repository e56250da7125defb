#pragma once
/// Pickles as PyTorch and Python write them, protocol 2 and above, read by a machine that executes nothing: of
/// opcodes and names it knows those that state_dicts, tensors and NumPy arrays need, everything else is an IoError that
/// names it. Memory taken is in proportion to the bytes read.

#include <functional>
#include <memory>
#include <string>

#include "athanor/io/file.h"
#include "athanor/ops/ivalue.h"

namespace athanor::io {

/// Bytes of a storage, in this machine's order, which `owner` keeps alive and which may be written.
struct StorageBytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<void> owner;
};

/// Where a pickle's storages are: key and size of an element (a loader may have to turn bytes around) to bytes.
using StorageLoader = std::function<StorageBytes(const std::string& key, std::size_t item_bytes)>;

/// The value of a pickle. OrderedDict, Counter become dicts; sets lists; torch.Size a tuple; bytes, torch.device and
/// torch.dtype texts; NumPy's arrays and scalars tensors and numbers. Integers beyond 64 bits, values that contain
/// themselves and nesting beyond 500 levels are refused. `name` is used in messages. Without a loader tensors are
/// refused. Throws IoError, TypeError for dtypes that this library lacks.
IValue unpickle(Bytes pickle, const std::string& name, const StorageLoader& storages = nullptr);

/// Gives a tensor as it is to be written, on the host, and the key under which its storage will be found.
using StorageNaming = std::function<std::pair<Tensor, std::string>(const Tensor&)>;

/// A pickle of protocol 2; tensors keep their place in their storages. Throws ValueError for what contains itself, is
/// nested beyond 500 levels or holds an undefined tensor.
std::vector<std::byte> pickle(const IValue& value, const StorageNaming& name_storage);

}  // namespace athanor::io
