#include "athanor/io/pt.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "athanor/io/pickle.h"
#include "athanor/io/zip.h"

namespace athanor {

namespace io {

namespace {

constexpr const char* kFolder = "archive/";

// Tells files that are something else what they are.
void check_is_archive(Bytes content, const std::string& name) {
  if (is_zip(content)) return;
  const auto begins = [&](std::string_view magic, std::size_t at = 0) {
    return content.size() >= at + magic.size() && std::memcmp(content.data() + at, magic.data(), magic.size()) == 0;
  };
  // A pickled number that PyTorch put first, or, before 0.1.10, a tar archive.
  const bool legacy = begins(std::string_view("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 9)) || begins("ustar", 257);
  ATHANOR_CHECK_TYPE(IoError, !legacy, name,
                     ": a file of PyTorch before 1.6, which this library does not read; in Python, "
                     "torch.save(torch.load(path), path) turns it into today's form");
  ATHANOR_THROW(IoError, name, ": neither a ZIP archive nor anything else that torch.save writes");
}

// Names in the archive begin with a folder that is called as the file was when it was saved.
std::string folder_in(const ZipReader& zip, const std::string& name) {
  for (const auto& [entry, content] : zip.entries())
    if (const auto cut = entry.find('/'); cut != std::string::npos && entry.substr(cut) == "/data.pkl") {
      std::string folder = entry.substr(0, cut + 1);
      ATHANOR_CHECK_TYPE(IoError, !zip.find(folder + "constants.pkl"), name,
                         ": a TorchScript archive; save the module's state_dict() in Python instead");
      return folder;
    }
  ATHANOR_THROW(IoError, name, ": a ZIP archive without data.pkl: not written by torch.save");
}

IValue parse(Bytes content, const std::shared_ptr<void>& owner, const std::string& name) {
  check_is_archive(content, name);
  const ZipReader zip(content, name);
  const std::string folder = folder_in(zip, name);
  bool swapped = false;
  if (zip.find(folder + "byteorder")) {
    const auto order = zip.read(folder + "byteorder", 64);
    const std::string_view text(reinterpret_cast<const char*>(order.data()), order.size());
    ATHANOR_CHECK_TYPE(IoError, text == "little" || text == "big", name, ": unknown byte order");
    swapped = text == "big";
  }
  std::map<std::string, StorageBytes> loaded;
  const StorageLoader load = [&](const std::string& key, std::size_t item_bytes) {
    if (const auto found = loaded.find(key); found != loaded.end()) return found->second;
    const std::string entry_name = folder + "data/" + key;
    const ZipReader::Entry* entry = zip.find(entry_name);
    ATHANOR_CHECK_TYPE(IoError, entry, name, ": storage '", key.substr(0, 200), "' is not in the archive");
    StorageBytes bytes;
    if (owner && !entry->deflated && !swapped) {
      bytes = {const_cast<std::byte*>(entry->packed.data()), entry->packed.size(), owner};
    } else {
      if (!entry->deflated) zip.check(entry_name, *entry, entry->packed);
      const auto unpacked = entry->deflated ? zip.read(entry_name) : std::vector<std::byte>();
      const Bytes from = entry->deflated ? Bytes(unpacked) : entry->packed;
      Array copy = empty_array(DType::Byte, {static_cast<std::int64_t>(from.size())});
      if (!from.empty()) std::memcpy(copy.data, from.data(), from.size());
      if (swapped) swap_bytes(copy.data, from.size() / item_bytes, item_bytes);
      bytes = {copy.data, from.size(), copy.owner};
    }
    return loaded.emplace(key, bytes).first->second;
  };
  const auto pickled = zip.read(folder + "data.pkl");
  return unpickle(pickled, name, load);
}

// Collects storages while the pickle is written. One that is seen as two dtypes is written as each of them.
class Storages {
 public:
  std::pair<Tensor, std::string> name(const Tensor& given) {
    const NoGradGuard off;
    Tensor t = given.device().is_host() ? given : given.detach().cpu().contiguous();
    const auto [at, fresh] = numbers_.emplace(std::pair(t.storage().get(), t.dtype()), tensors_.size());
    if (fresh) tensors_.push_back(t);
    return {t, std::to_string(at->second)};
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::map<std::pair<const Storage*, DType>, std::size_t> numbers_;
  std::vector<Tensor> tensors_;
};

void write(const IValue& value, const ZipWriter::Sink& sink) {
  Storages storages;
  const auto pickled = pickle(value, [&](const Tensor& t) { return storages.name(t); });
  ZipWriter zip(sink);
  const std::string folder = kFolder;
  const auto text = [](std::string_view s) { return std::as_bytes(std::span(s)); };
  zip.add(folder + "data.pkl", pickled);
  zip.add(folder + "byteorder", text("little"));
  for (std::size_t i = 0; i < storages.tensors().size(); ++i) {
    const Tensor& t = storages.tensors()[i];
    t.data_ptr();  // waits for what is still to be written
    Storage& storage = *t.storage();
    zip.add(folder + "data/" + std::to_string(i), {static_cast<const std::byte*>(storage.data()), storage.nbytes()});
  }
  zip.add(folder + "version", text("3\n"));
  zip.finish();
}

}  // namespace

bool is_pt(const std::string& path) { return is_zip(MappedFile(path).bytes()); }

IValue load_pt(const std::string& path, Loading loading) {
  const std::string name = athanor::detail::str("'", path, "'");
  auto file = std::make_shared<MappedFile>(path);
  const Bytes content = file->bytes();
  return parse(content, loading == Loading::Mapped ? std::shared_ptr<void>(file) : nullptr, name);
}

IValue parse_pt(Bytes content, const std::string& name) { return parse(content, nullptr, name); }

void save_pt(const std::string& path, const IValue& value) {
  std::unique_ptr<AtomicFile> file;
  write(value, [&](const void* data, std::size_t size) {
    // Opened at the first byte: the value is known to be writable by then.
    if (!file) file = std::make_unique<AtomicFile>(path);
    file->write(data, size);
  });
  file->commit();
}

void save_pt(const std::string& path, const nn::Module& module) { save_pt(path, to_ivalue(module.state_dict())); }

nn::Module::StateDict to_state_dict(const IValue& value) {
  ATHANOR_CHECK_VALUE(value.isGenericDict(), "to_state_dict: expected a dict of tensors, got ", value.tagKind());
  nn::Module::StateDict state;
  std::string inner;
  for (const auto& e : value.toGenericDict()) {
    ATHANOR_CHECK_VALUE(e.key().isString(), "to_state_dict: expected texts as keys, got ", e.key().tagKind());
    if (e.value().isTensor()) state.insert(e.key().toStringRef(), e.value().toTensor());
    if (e.value().isGenericDict()) inner += (inner.empty() ? "'" : ", '") + e.key().toStringRef() + "'";
  }
  ATHANOR_CHECK_VALUE(!state.is_empty() || inner.empty(), "to_state_dict: the dict holds no tensors but other dicts, ",
                      inner, "; take one of them");
  return state;
}

IValue to_ivalue(const nn::Module::StateDict& state) {
  GenericDict dict;
  for (const auto& item : state) dict.insert_or_assign(item.key(), item.value());
  return dict;
}

}  // namespace io

IValue pickle_load(const std::vector<char>& data) {
  return io::parse_pt(std::as_bytes(std::span(data)), "pickle_load");
}

std::vector<char> pickle_save(const IValue& value) {
  std::vector<char> out;
  io::write(value, [&](const void* data, std::size_t size) {
    const char* from = static_cast<const char*>(data);
    if (size > 0) out.insert(out.end(), from, from + size);
  });
  return out;
}

}  // namespace athanor
