#include <bit>
#include <unordered_map>

#include "athanor/io/pickle.h"
#include "athanor/ops/ivalue_access.h"

namespace athanor::io {

namespace {

constexpr int kMostDepth = 500;

const char* storage_name(DType t) {
  switch (t) {
    case DType::Byte:
      return "ByteStorage";
    case DType::Char:
      return "CharStorage";
    case DType::Short:
      return "ShortStorage";
    case DType::Int:
      return "IntStorage";
    case DType::Long:
      return "LongStorage";
    case DType::Half:
      return "HalfStorage";
    case DType::Float:
      return "FloatStorage";
    case DType::Double:
      return "DoubleStorage";
    case DType::Bool:
      return "BoolStorage";
    case DType::BFloat16:
      return "BFloat16Storage";
    case DType::Undefined:
      break;
  }
  ATHANOR_THROW(TypeError, "pickle: a tensor without dtype");
}

class Writer {
 public:
  explicit Writer(const StorageNaming& name_storage) : name_storage_(name_storage) {}

  std::vector<std::byte> run(const IValue& value) {
    put(0x80);
    put(2);
    write(value, 0);
    put('.');
    return std::move(out_);
  }

 private:
  void put(std::uint8_t byte) { out_.push_back(static_cast<std::byte>(byte)); }
  void put_bytes(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  template <class T>
  void put_number(T value) {
    put_bytes({reinterpret_cast<const char*>(&value), sizeof value});
  }

  void write_integer(std::int64_t value) {
    if (value >= 0 && value < 256) {
      put('K');
      put(static_cast<std::uint8_t>(value));
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      put('J');
      put_number(static_cast<std::int32_t>(value));
    } else {
      put(0x8a);
      put(8);
      put_number(value);
    }
  }
  void write_text(const std::string& text) {
    ATHANOR_CHECK_VALUE(text.size() <= UINT32_MAX, "pickle: a text of ", text.size(), " bytes, at most 2^32 - 1 fit");
    put('X');
    put_number(static_cast<std::uint32_t>(text.size()));
    put_bytes(text);
  }
  void write_global(std::string_view module, std::string_view name) {
    put('c');
    put_bytes(module);
    put('\n');
    put_bytes(name);
    put('\n');
  }
  void write_integers(IntArrayRef values) {
    put('(');
    for (const std::int64_t v : values) write_integer(v);
    put('t');
  }

  // The call that PyTorch makes a tensor by: its storage, and where and how the tensor lies in it.
  void write_tensor(const Tensor& given) {
    const auto [t, key] = name_storage_(given);
    write_global("torch._utils", "_rebuild_tensor_v2");
    put('(');
    put('(');
    write_text("storage");
    write_global("torch", storage_name(t.dtype()));
    write_text(key);
    write_text("cpu");
    write_integer(static_cast<std::int64_t>(t.storage()->nbytes() / t.itemsize()));
    put('t');
    put('Q');
    write_integer(t.storage_offset());
    write_integers(t.sizes());
    write_integers(t.strides());
    put(given.requires_grad() ? 0x88 : 0x89);
    write_global("collections", "OrderedDict");
    put(')');
    put('R');
    put('t');
    put('R');
  }

  void write_items(const std::vector<IValue>& items, int depth) {
    for (const IValue& item : items) write(item, depth + 1);
  }

  // Containers are written where they are met first and recalled afterwards.
  bool recall(const void* identity) {
    const auto found = memo_.find(identity);
    if (found == memo_.end()) return false;
    ATHANOR_CHECK_VALUE(found->second != kOpen, "pickle: a value contains itself");
    put('j');
    put_number(found->second);
    return true;
  }
  void remember(const void* identity) {
    const auto slot = static_cast<std::uint32_t>(slots_++);
    put('r');
    put_number(slot);
    memo_[identity] = slot;
  }

  void write(const IValue& value, int depth);

  static constexpr std::uint32_t kOpen = UINT32_MAX;
  const StorageNaming& name_storage_;
  std::vector<std::byte> out_;
  std::unordered_map<const void*, std::uint32_t> memo_;
  std::size_t slots_ = 0;
};

void Writer::write(const IValue& value, int depth) {
  ATHANOR_CHECK_VALUE(depth < kMostDepth, "pickle: values are nested deeper than ", kMostDepth);
  if (value.isNone()) return put('N');
  if (value.isBool()) return put(value.toBool() ? 0x88 : 0x89);
  if (value.isInt()) return write_integer(value.toInt());
  if (value.isDouble()) {
    put('G');
    return put_number(__builtin_bswap64(std::bit_cast<std::uint64_t>(value.toDouble())));
  }
  if (value.isString()) return write_text(value.toStringRef());
  // The same handle stays the same tensor in Python: what tied weights rely on.
  const void* identity = value.isTensor() ? value.toTensor().impl() : IValueAccess::identity(value);
  ATHANOR_CHECK_VALUE(identity, "pickle: ", value.isTensor() ? "a tensor that is undefined" : value.tagKind(),
                      " cannot be written");
  if (recall(identity)) return;
  memo_[identity] = kOpen;
  if (value.isTensor()) {
    write_tensor(value.toTensor());
  } else if (value.isGenericDict()) {
    put('}');
    put('(');
    for (const auto& e : value.toGenericDict()) {
      write(e.key(), depth + 1);
      write(e.value(), depth + 1);
    }
    put('u');
  } else {
    if (value.isList()) put(']');
    put('(');
    write_items(value.elements(), depth);
    put(value.isList() ? 'e' : 't');
  }
  remember(identity);
}

}  // namespace

std::vector<std::byte> pickle(const IValue& value, const StorageNaming& name_storage) {
  return Writer(name_storage).run(value);
}

}  // namespace athanor::io
