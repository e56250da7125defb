#include "athanor/io/archive.h"

#include <istream>
#include <iterator>
#include <ostream>
#include <set>

#include "athanor/io/pt.h"
#include "athanor/io/zip.h"

namespace athanor::serialize {

namespace {

/// Under what names single tensors and optimizers are kept; lists count from 0.
constexpr const char* kTensor = "tensor";
constexpr const char* kCount = "count";
constexpr const char* kOptimizer = "optimizer";

/// Calls take(rest of the name, value) for the entries below "key.".
template <class Entries, class F>
void for_nested(const Entries& entries, const std::string& key, F&& take) {
  const std::string prefix = key + ".";
  for (auto it = entries.lower_bound(prefix); it != entries.end() && it->first.starts_with(prefix); ++it)
    take(it->first.substr(prefix.size()), it->second);
}

/// What torch.save wrote, as an archive: names of nested dicts and lists are joined by dots.
class Flattening {
 public:
  io::Checkpoint run(const IValue& value) {
    if (value.isTensor()) {
      out_.set(kTensor, value.toTensor());
    } else if (value.isList() || value.isTuple()) {
      out_.set(kCount, static_cast<std::int64_t>(value.elements().size()));
      add_items("", value);
    } else {
      add("", value);
    }
    return std::move(out_);
  }

 private:
  void add_items(const std::string& prefix, const IValue& list) {
    for (std::size_t i = 0; i < list.elements().size(); ++i) add(prefix + std::to_string(i), list.elements()[i]);
  }
  void add(const std::string& name, const IValue& value) {
    // A dict that stands in many places of a hostile file stands for more entries than the file has bytes.
    constexpr std::size_t kMaxEntries = 1 << 18, kMaxNames = 1 << 26;
    ATHANOR_CHECK_TYPE(IoError, ++entries_ <= kMaxEntries && (names_ += name.size()) <= kMaxNames,
                       "load: the file has more than ", kMaxEntries,
                       " entries or names of more than 64 MB; take what is needed from io::load_pt");
    const std::string prefix = name.empty() ? "" : name + ".";
    if (value.isTensor())
      out_.set(name, value.toTensor());
    else if (value.isString())
      out_.set(name, value.toStringRef());
    else if (value.isDouble())
      out_.set(name, value.toDouble());
    else if (value.isInt() || value.isBool())
      out_.set(name, value.isInt() ? value.toInt() : static_cast<std::int64_t>(value.toBool()));
    else if (value.isList() || value.isTuple())
      add_items(prefix, value);
    else if (value.isGenericDict())
      for (const auto& e : value.toGenericDict())
        if (e.key().isString() || e.key().isInt())
          add(prefix + (e.key().isString() ? e.key().toStringRef() : std::to_string(e.key().toInt())), e.value());
  }

  io::Checkpoint out_;
  std::size_t entries_ = 0, names_ = 0;
};

}  // namespace

void OutputArchive::write(const std::string& key, const Tensor& tensor, bool /*is_buffer*/) {
  ATHANOR_CHECK_VALUE(tensor.defined(), "OutputArchive: tensor '", key, "' is undefined");
  content_.set(key, tensor.detach());
}

void OutputArchive::write(const std::string& key, const IValue& value) {
  if (value.isTensor())
    write(key, value.toTensor());
  else if (value.isString())
    write(key, value.toStringRef());
  else if (value.isDouble())  // numbers as tensors, whose dtype says what they were
    write(key, full({}, value.toDouble(), TensorOptions(kDouble)));
  else if (value.isInt())
    write(key, full({}, value.toInt(), TensorOptions(kLong)));
  else if (value.isBool())
    write(key, full({}, value.toBool(), TensorOptions(kBool)));
  else
    ATHANOR_THROW(TypeError, "OutputArchive: '", key, "' is a ", value.tagKind(),
                  "; expected a tensor, number, bool or text. Write the parts of containers one by one.");
}

void OutputArchive::write(const std::string& key, const OutputArchive& nested) {
  const std::string prefix = key + ".";
  for (const auto& [name, tensor] : nested.content_.tensors()) content_.set(prefix + name, tensor);
  for (const auto& [name, text] : nested.content_.texts()) content_.set(prefix + name, text);
}

void OutputArchive::save_to(std::ostream& stream) const {
  const auto bytes = content_.bytes();
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.flush();
  ATHANOR_CHECK_TYPE(IoError, stream.good(), "save: the stream did not take ", bytes.size(), " bytes");
}

void OutputArchive::save_to(const std::function<std::size_t(const void*, std::size_t)>& write) const {
  const auto bytes = content_.bytes();
  const std::size_t taken = write(bytes.data(), bytes.size());
  ATHANOR_CHECK_TYPE(IoError, taken == bytes.size(), "save: the function took ", taken, " of ", bytes.size(), " bytes");
}

void InputArchive::load_from(const std::string& path, std::optional<Device> device) {
  content_ = io::is_pt(path) ? Flattening().run(io::load_pt(path)) : io::Checkpoint::load(path);
  if (device) content_.to(*device);
}

void InputArchive::load_from(std::istream& stream, std::optional<Device> device) {
  std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  take_bytes(std::as_writable_bytes(std::span(bytes)), device);
}

void InputArchive::load_from(const char* data, std::size_t size, std::optional<Device> device) {
  std::vector<char> bytes(data, data + size);
  take_bytes(std::as_writable_bytes(std::span(bytes)), device);
}

void InputArchive::load_from(const std::function<std::size_t(std::uint64_t, void*, std::size_t)>& read,
                             const std::function<std::size_t()>& size, std::optional<Device> device) {
  std::vector<char> bytes(size());
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t got = read(done, bytes.data() + done, bytes.size() - done);
    ATHANOR_CHECK_TYPE(IoError, got > 0 && got <= bytes.size() - done, "load: the function gave ", got,
                       " bytes at position ", done, " of ", bytes.size());
    done += got;
  }
  take_bytes(std::as_writable_bytes(std::span(bytes)), device);
}

void InputArchive::take_bytes(std::span<std::byte> content, std::optional<Device> device) {
  content_ = io::is_zip(content) ? Flattening().run(io::parse_pt(content, "load")) : io::Checkpoint::parse(content);
  if (device) content_.to(*device);
}

bool InputArchive::try_read(const std::string& key, Tensor& tensor, bool /*is_buffer*/) {
  const auto found = content_.tensors().find(key);
  if (found == content_.tensors().end()) return false;
  const NoGradGuard off;
  if (tensor.defined())
    tensor.set_data(found->second.to(TensorOptions(tensor.device())));
  else
    tensor = found->second;
  return true;
}

bool InputArchive::try_read(const std::string& key, IValue& value) {
  if (const auto text = content_.texts().find(key); text != content_.texts().end()) {
    value = IValue(text->second);
    return true;
  }
  const auto found = content_.tensors().find(key);
  if (found == content_.tensors().end()) return false;
  const Tensor& tensor = found->second;
  if (tensor.dim() == 0 && tensor.dtype() == kLong)
    value = IValue(tensor.item<std::int64_t>());
  else if (tensor.dim() == 0 && tensor.dtype() == kDouble)
    value = IValue(tensor.item<double>());
  else if (tensor.dim() == 0 && tensor.dtype() == kBool)
    value = IValue(tensor.item<bool>());
  else
    value = IValue(tensor);
  return true;
}

void InputArchive::read(const std::string& key, IValue& value) {
  ATHANOR_CHECK_VALUE(try_read(key, value), "No such serialized value '", key, "'");
}

void InputArchive::read(const std::string& key, Tensor& tensor, bool is_buffer) {
  ATHANOR_CHECK_VALUE(try_read(key, tensor, is_buffer), "No such serialized tensor '", key, "'");
}

bool InputArchive::try_read(const std::string& key, InputArchive& nested) {
  io::Checkpoint below;
  for_nested(content_.tensors(), key, [&](const std::string& name, const Tensor& t) { below.set(name, t); });
  for_nested(content_.texts(), key, [&](const std::string& name, const std::string& t) { below.set(name, t); });
  if (below.tensors().empty() && below.texts().empty()) return false;
  nested.content_ = std::move(below);
  return true;
}

void InputArchive::read(const std::string& key, InputArchive& nested) {
  ATHANOR_CHECK_VALUE(try_read(key, nested), "No such serialized submodule: '", key, "'");
}

std::vector<std::string> InputArchive::keys() const {
  std::vector<std::string> keys;
  std::set<std::string> known;
  const auto add = [&](const auto& entries) {
    for (const auto& [name, value] : entries) {
      std::string first = name.substr(0, name.find('.'));
      if (known.insert(first).second) keys.push_back(std::move(first));
    }
  };
  add(content_.tensors());
  add(content_.texts());
  return keys;
}

namespace detail {

void put(OutputArchive& archive, const Tensor& tensor) { archive.write(kTensor, tensor); }

void put(OutputArchive& archive, const std::vector<Tensor>& tensors) {
  archive.write(kCount, tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) archive.write(std::to_string(i), tensors[i]);
}

void take(InputArchive& archive, Tensor& tensor) { archive.read(kTensor, tensor); }

void take(InputArchive& archive, std::vector<Tensor>& tensors) {
  std::int64_t count = 0;
  archive.read(kCount, count);
  const auto present = static_cast<std::int64_t>(archive.content().tensors().size());
  ATHANOR_CHECK_VALUE(count >= 0 && count <= present, "load: the file announces ", count, " tensors and holds ",
                      present);
  std::vector<Tensor> read(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < read.size(); ++i) archive.read(std::to_string(i), read[i]);
  tensors = std::move(read);
}

}  // namespace detail
}  // namespace athanor::serialize

// Declared where the classes are; defined here since archives stand on a higher floor.
namespace athanor {

void nn::Module::save(serialize::OutputArchive& archive) const {
  for (const auto& item : state_dict()) archive.write(item.key(), item.value());
}

void nn::Module::load(serialize::InputArchive& archive) {
  const auto& tensors = archive.content().tensors();
  StateDict known;
  for (const auto& item : state_dict())
    if (const auto found = tensors.find(item.key()); found != tensors.end()) known.insert(item.key(), found->second);
  load_state_dict(known);
}

void optim::Optimizer::save(serialize::OutputArchive& archive) const {
  archive.content().set_optimizer(serialize::kOptimizer, *this);
}

void optim::Optimizer::load(serialize::InputArchive& archive) {
  archive.content().load_optimizer(serialize::kOptimizer, *this);
}

}  // namespace athanor
