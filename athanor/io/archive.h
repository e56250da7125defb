#pragma once
/// torch::save and torch::load: tensors, modules and optimizers to files or streams and back, and the archives that
/// libtorch programs put their own things into. What is written is safetensors, whatever the file is called: Python's
/// safetensors package reads it (for torch.load see io::save_pt). Files of Python's torch.save are read as well, their
/// nested dicts under names joined by dots. Files appear whole or not at all.

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/io/checkpoint.h"
#include "athanor/nn/pimpl.h"
#include "athanor/ops/ivalue.h"

namespace athanor::serialize {

/// Named tensors, numbers and texts on their way out; archives nest.
class OutputArchive {
 public:
  void write(const std::string& key, const Tensor& tensor, bool is_buffer = false);
  void write(const std::string& key, const std::string& text) { content_.set(key, text); }
  template <class Number>
  requires(std::is_arithmetic_v<Number>) void write(const std::string& key, Number value) {
    if constexpr (std::is_integral_v<Number>)
      content_.set(key, static_cast<std::int64_t>(value));
    else
      content_.set(key, static_cast<double>(value));
  }
  /// A tensor, number, bool or text. Throws TypeError for another value.
  void write(const std::string& key, const IValue& value);
  /// Everything in `nested`, its names after "key.".
  void write(const std::string& key, const OutputArchive& nested);
  /// Throws IoError.
  void save_to(const std::string& path) const { content_.save(path); }
  void save_to(std::ostream& stream) const;
  /// Hands the bytes to `write`, which returns how many it took.
  void save_to(const std::function<std::size_t(const void*, std::size_t)>& write) const;
  io::Checkpoint& content() { return content_; }

 private:
  io::Checkpoint content_;
};

/// The same on their way in. read throws ValueError naming an entry that is not there; try_read returns false.
class InputArchive {
 public:
  /// Tensors move to `device`, the host unless given. Throws IoError.
  void load_from(const std::string& path, std::optional<Device> device = std::nullopt);
  void load_from(std::istream& stream, std::optional<Device> device = std::nullopt);
  void load_from(const char* data, std::size_t size, std::optional<Device> device = std::nullopt);
  /// `read` copies bytes from a position into a buffer and returns how many; `size` says how many there are.
  void load_from(const std::function<std::size_t(std::uint64_t, void*, std::size_t)>& read,
                 const std::function<std::size_t()>& size, std::optional<Device> device = std::nullopt);

  /// An undefined `tensor` becomes the one read; a defined one stays where it is and gets its values and shape.
  void read(const std::string& key, Tensor& tensor, bool is_buffer = false);
  bool try_read(const std::string& key, Tensor& tensor, bool is_buffer = false);
  void read(const std::string& key, std::string& text) { text = content_.text(key); }
  template <class Number>
  requires(std::is_arithmetic_v<Number>) void read(const std::string& key, Number& value) {
    if constexpr (std::is_integral_v<Number>)
      value = static_cast<Number>(content_.integer(key));
    else
      value = static_cast<Number>(content_.number(key));
  }
  void read(const std::string& key, InputArchive& nested);
  bool try_read(const std::string& key, InputArchive& nested);
  /// A text, tensor or number; 0-d tensors of int64, float64 and bool come as numbers.
  void read(const std::string& key, IValue& value);
  bool try_read(const std::string& key, IValue& value);
  /// The first parts of all names.
  std::vector<std::string> keys() const;
  const io::Checkpoint& content() const { return content_; }

 private:
  void take_bytes(std::span<std::byte> bytes, std::optional<Device> device);
  io::Checkpoint content_;
};

namespace detail {
/// Anything that writes and reads itself, such as a sampler.
template <class T>
requires requires(const T& value, OutputArchive& archive) { value.save(archive); }
void put(OutputArchive& archive, const T& value) { value.save(archive); }
template <class T>
requires requires(T& value, InputArchive& archive) { value.load(archive); }
void take(InputArchive& archive, T& value) { value.load(archive); }
void put(OutputArchive& archive, const Tensor& tensor);
void put(OutputArchive& archive, const std::vector<Tensor>& tensors);
template <class M>
void put(OutputArchive& archive, const nn::ModuleHolder<M>& holder) {
  holder->save(archive);
}
template <class T>
void put(OutputArchive& archive, const std::shared_ptr<T>& pointer) {
  ATHANOR_CHECK_VALUE(pointer, "save: the pointer is null");
  put(archive, *pointer);
}
void take(InputArchive& archive, Tensor& tensor);
void take(InputArchive& archive, std::vector<Tensor>& tensors);
template <class M>
void take(InputArchive& archive, nn::ModuleHolder<M>& holder) {
  holder->load(archive);
}
template <class T>
void take(InputArchive& archive, std::shared_ptr<T>& pointer) {
  ATHANOR_CHECK_VALUE(pointer, "load: the pointer is null; make the module first");
  take(archive, *pointer);
}
}  // namespace detail

}  // namespace athanor::serialize

namespace athanor {

/// Writes a tensor, a vector of tensors, a module (or its holder or shared_ptr), an optimizer or anything else with
/// `save(OutputArchive&) const` to a file, a stream or a function that takes bytes.
template <class Value, class Target>
void save(const Value& value, Target&& target) {
  serialize::OutputArchive archive;
  serialize::detail::put(archive, value);
  archive.save_to(target);
}

/// Reads what save wrote. A module must have been made with the same layers: entries missing from the file or of
/// another shape are an Error that lists them, and nothing is changed; entries it does not know are ignored. An
/// optimizer must have the same groups.
template <class Value, class Source>
void load(Value& value, Source&& source) {
  serialize::InputArchive archive;
  archive.load_from(source);
  serialize::detail::take(archive, value);
}
/// The same, with the tensors on a device.
template <class Value, class Source, class Place>
requires(std::is_convertible_v<Place, std::optional<Device>> &&
         !std::is_integral_v<std::decay_t<Place>>) void load(Value& value, Source&& source, Place&& device) {
  serialize::InputArchive archive;
  archive.load_from(source, std::optional<Device>(std::forward<Place>(device)));
  serialize::detail::take(archive, value);
}
/// The same from memory.
template <class Value>
void load(Value& value, const char* data, std::size_t size, std::optional<Device> device = std::nullopt) {
  serialize::InputArchive archive;
  archive.load_from(data, size, device);
  serialize::detail::take(archive, value);
}
/// The same from functions that read bytes and say how many there are.
template <class Value>
void load(Value& value, const std::function<std::size_t(std::uint64_t, void*, std::size_t)>& read,
          const std::function<std::size_t()>& size, std::optional<Device> device = std::nullopt) {
  serialize::InputArchive archive;
  archive.load_from(read, size, device);
  serialize::detail::take(archive, value);
}

}  // namespace athanor
