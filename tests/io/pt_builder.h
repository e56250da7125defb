#pragma once
/// Files as torch.save writes them, put together by hand: opcodes of pickles are written out, as pickletools shows
/// them.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "athanor/io/zip.h"

namespace athanor::io {

using std::string_literals::operator""s;

struct Pickle {
  static std::string whole(const std::string& body) { return "\x80\x02" + body + "."; }
  static std::string text(const std::string& s) {
    std::string out = "X";
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(s.size() >> shift);
    return out + s;
  }
  /// `geometry` pushes offset, sizes and strides.
  static std::string tensor(const std::string& geometry, const std::string& type, const std::string& key, int numel) {
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + type + "\n" + text(key) +
           text("cpu") + "K" + static_cast<char>(numel) + "tQ" + geometry + "\x89" + "ccollections\nOrderedDict\n)RtR";
  }
};

inline std::string zip_file(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out;
  ZipWriter zip([&](const void* data, std::size_t size) { out.append(static_cast<const char*>(data), size); });
  for (const auto& [name, content] : entries) zip.add(name, std::as_bytes(std::span(content)));
  zip.finish();
  return out;
}

/// An archive with this pickle and these storages.
inline std::string pt_file(const std::string& pickle, const std::map<std::string, std::string>& storages = {}) {
  std::vector<std::pair<std::string, std::string>> entries = {{"x/data.pkl", pickle}, {"x/byteorder", "little"}};
  for (const auto& [key, bytes] : storages) entries.emplace_back("x/data/" + key, bytes);
  entries.emplace_back("x/version", "3\n");
  return zip_file(entries);
}

}  // namespace athanor::io
