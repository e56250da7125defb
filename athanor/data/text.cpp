#include "athanor/data/text.h"

#include <algorithm>
#include <set>

#include "athanor/io/file.h"
#include "athanor/io/utf8.h"

namespace athanor::data::datasets {

namespace {

/// Calls take for one character after the other; returns where the text is not UTF-8, or its length.
template <class F>
std::size_t for_characters(std::string_view text, F&& take) {
  std::size_t at = 0;
  for (std::size_t length = 0; at < text.size(); at += length) {
    length = io::utf8_length(text, at);
    if (length == 0) break;
    take(text.substr(at, length));
  }
  return at;
}

}  // namespace

TextLines::TextLines(const std::string& path) {
  const std::string text = io::read_text(path);
  auto lines = std::make_shared<std::vector<std::string>>();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const bool carriage = end > at && end < text.size() && text[end - 1] == '\r';
    lines->push_back(text.substr(at, end - at - (carriage ? 1 : 0)));
    at = end + 1;
  }
  lines_ = std::move(lines);
}

std::string TextLines::get(std::size_t index) {
  ATHANOR_CHECK_INDEX(index < lines_->size(), "TextLines: index ", index, " is out of range for ", lines_->size(),
                      " lines");
  return (*lines_)[index];
}

CharacterCorpus CharacterCorpus::from_file(const std::string& path, std::size_t context) {
  return {io::read_text(path), context, athanor::detail::str("'", path, "'")};
}

CharacterCorpus::CharacterCorpus(std::string_view text, std::size_t context)
    : CharacterCorpus(text, context, "CharacterCorpus") {}

CharacterCorpus::CharacterCorpus(std::string_view text, std::size_t context, const std::string& name)
    : context_(context) {
  ATHANOR_CHECK_VALUE(context > 0, "CharacterCorpus: the context is 0, expected at least 1");
  std::set<std::string_view> found;
  std::int64_t count = 0;
  const std::size_t end = for_characters(text, [&](std::string_view c) {
    found.insert(c);
    ++count;
  });
  ATHANOR_CHECK_TYPE(IoError, end == text.size(), name, ": not UTF-8 at byte ", end);
  auto content = std::make_shared<Content>();
  for (const std::string_view c : found) {
    content->numbers.emplace(c, static_cast<std::int64_t>(content->characters.size()));
    content->characters.emplace_back(c);
  }
  content->tokens = empty({count}, kLong);
  auto* to = content->tokens.data_ptr<std::int64_t>();
  for_characters(text, [&](std::string_view c) { *to++ = content->numbers.find(c)->second; });
  content_ = std::move(content);
}

std::optional<std::size_t> CharacterCorpus::size() const {
  const auto length = static_cast<std::size_t>(content_->tokens.size(0));
  return length > context_ ? length - context_ : 0;
}

Example<> CharacterCorpus::get(std::size_t index) {
  ATHANOR_CHECK_INDEX(index < *size(), "CharacterCorpus: index ", index, " is out of range for ", *size(), " examples");
  const auto i = static_cast<std::int64_t>(index), n = static_cast<std::int64_t>(context_);
  return {content_->tokens.narrow(0, i, n), content_->tokens.narrow(0, i + 1, n)};
}

Example<> CharacterCorpus::get_stacked(ArrayRef<std::size_t> indices) {
  const auto rows = static_cast<std::int64_t>(indices.size()), n = static_cast<std::int64_t>(context_);
  Example<> batch{empty({rows, n}, kLong), empty({rows, n}, kLong)};
  const auto* from = content_->tokens.data_ptr<std::int64_t>();
  auto *data = batch.data.data_ptr<std::int64_t>(), *target = batch.target.data_ptr<std::int64_t>();
  for (const std::size_t i : indices) {
    ATHANOR_CHECK_INDEX(i < *size(), "CharacterCorpus: index ", i, " is out of range for ", *size(), " examples");
    data = std::copy_n(from + i, context_, data);
    target = std::copy_n(from + i + 1, context_, target);
  }
  return batch;
}

Tensor CharacterCorpus::encode(std::string_view text) const {
  std::vector<std::int64_t> numbers;
  const std::size_t end = for_characters(text, [&](std::string_view c) {
    const auto found = content_->numbers.find(c);
    ATHANOR_CHECK_VALUE(found != content_->numbers.end(), "CharacterCorpus: encode: the corpus has no '", c, "'");
    numbers.push_back(found->second);
  });
  ATHANOR_CHECK_VALUE(end == text.size(), "CharacterCorpus: encode: not UTF-8 at byte ", end);
  Tensor t = empty({static_cast<std::int64_t>(numbers.size())}, kLong);
  std::ranges::copy(numbers, t.data_ptr<std::int64_t>());
  return t;
}

std::string CharacterCorpus::decode(const Tensor& tokens) const {
  const Tensor flat = tokens.to(kLong).reshape({-1}).contiguous();
  std::string text;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const std::int64_t number = flat.data_ptr<std::int64_t>()[i];
    ATHANOR_CHECK_INDEX(number >= 0 && number < static_cast<std::int64_t>(vocabulary_size()),
                        "CharacterCorpus: decode: number ", number, " is none of the ", vocabulary_size(),
                        " characters, which count from 0");
    text += content_->characters[static_cast<std::size_t>(number)];
  }
  return text;
}

}  // namespace athanor::data::datasets
