#pragma once
/// torch::save and torch::load: tensors, modules and optimizers to files or streams and back, and the archives that
/// libtorch programs put their own things into. What is written is safetensors, whatever the file is called: Python's
/// safetensors package reads it (for torch.load see io::save_pt). Files of Python's torch.save are read as well, their
/// nested dicts under names joined by dots. Files appear whole or not at all.

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/io/checkpoint.h"
#include "athanor/nn/pimpl.h"

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
  /// Everything in `nested`, its names after "key.".
  void write(const std::string& key, const OutputArchive& nested);
  /// Throws IoError.
  void save_to(const std::string& path) const { content_.save(path); }
  void save_to(std::ostream& stream) const;
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
  /// The first parts of all names.
  std::vector<std::string> keys() const;
  const io::Checkpoint& content() const { return content_; }

 private:
  io::Checkpoint content_;
};

namespace detail {
void put(OutputArchive& archive, const Tensor& tensor);
void put(OutputArchive& archive, const std::vector<Tensor>& tensors);
inline void put(OutputArchive& archive, const nn::Module& module) { module.save(archive); }
inline void put(OutputArchive& archive, const optim::Optimizer& optimizer) { optimizer.save(archive); }
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
inline void take(InputArchive& archive, nn::Module& module) { module.load(archive); }
inline void take(InputArchive& archive, optim::Optimizer& optimizer) { optimizer.load(archive); }
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

/// Writes a tensor, a vector of tensors, a module (or its holder or shared_ptr) or an optimizer to a file or stream.
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
void load(Value& value, Source&& source, std::optional<Device> device = std::nullopt) {
  serialize::InputArchive archive;
  archive.load_from(source, device);
  serialize::detail::take(archive, value);
}

}  // namespace athanor
