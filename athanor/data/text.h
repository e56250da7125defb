#pragma once
/// Text files as datasets: lines, and characters to predict. Not part of athanor.h.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/data/datasets.h"

namespace athanor::data::datasets {

/// The lines of a text file, without their ends ("\n" or "\r\n"); an end after the last line starts no further one.
class TextLines : public Dataset<TextLines, std::string> {
 public:
  /// Throws IoError.
  explicit TextLines(const std::string& path);
  std::string get(std::size_t index) override;
  std::optional<std::size_t> size() const override { return lines_->size(); }

 private:
  std::shared_ptr<const std::vector<std::string>> lines_;
};

/// A text as numbers of its characters (UTF-8's, sorted), for models of language: example i is the `context` characters
/// from i on and, as target, those from i + 1 on, int64. Copies share the text. Thread-safe.
class CharacterCorpus : public Dataset<CharacterCorpus> {
 public:
  /// Throws IoError for a text that is not UTF-8, ValueError for a context of 0.
  static CharacterCorpus from_file(const std::string& path, std::size_t context);
  CharacterCorpus(std::string_view text, std::size_t context);

  Example<> get(std::size_t index) override;
  /// A batch in one tensor (N, context).
  Example<> get_stacked(ArrayRef<std::size_t> indices);
  /// 0 for a text that is no longer than the context.
  std::optional<std::size_t> size() const override;
  std::size_t vocabulary_size() const { return content_->characters.size(); }
  const std::vector<std::string>& characters() const { return content_->characters; }
  /// The whole text (length).
  const Tensor& tokens() const { return content_->tokens; }
  /// Throws ValueError for a character that the corpus lacks.
  Tensor encode(std::string_view text) const;
  /// Throws IndexError for a number that is none.
  std::string decode(const Tensor& tokens) const;

 private:
  CharacterCorpus(std::string_view text, std::size_t context, const std::string& name);
  struct Content {
    std::vector<std::string> characters;
    std::map<std::string, std::int64_t, std::less<>> numbers;
    Tensor tokens;
  };
  std::shared_ptr<const Content> content_;
  std::size_t context_;
};

}  // namespace athanor::data::datasets
