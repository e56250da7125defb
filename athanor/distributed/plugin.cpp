#include "athanor/distributed/plugin.h"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// The folders of ATHANOR_PLUGIN_PATH, then the one the library was loaded from.
std::vector<std::filesystem::path> plugin_folders() {
  std::vector<std::filesystem::path> folders;
  std::string rest = env::text("ATHANOR_PLUGIN_PATH").value_or("");
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) folders.emplace_back(rest.substr(0, end));
    rest.erase(0, std::min(end + 1, rest.size()));
  }
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&load_plugin), &here) != 0 && here.dli_fname)
    folders.push_back(std::filesystem::path(here.dli_fname).parent_path());
  return folders;
}

void* symbol(void* library, const char* name, const std::filesystem::path& file) {
  void* found = ::dlsym(library, name);
  if (!found)
    throw DistError(str("plug-in ", file.string(), ": it has no symbol ", name, ", so it is no plug-in of Athanor"),
                    ATHANOR_WHERE);
  return found;
}

void* load_file(const std::filesystem::path& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    throw DistError(str("plug-in ", file.string(), " cannot be loaded: ", reason ? reason : "unknown reason"),
                    ATHANOR_WHERE);
  }
  const int abi = *static_cast<const int*>(symbol(library, "athanor_plugin_abi", file));
  if (abi != kPluginAbi)
    throw DistError(str("plug-in ", file.string(), " was built for version ", abi, " of the plug-in interface; this ",
                        "library has version ", kPluginAbi, ": build it anew"),
                    ATHANOR_WHERE);
  reinterpret_cast<void (*)()>(symbol(library, "athanor_register_plugin", file))();
  ATHANOR_LOG(Debug, "plug-in ", file.string(), " loaded");
  return library;
}

struct Loaded {
  std::mutex mutex;
  std::map<std::string, void*> libraries;
};
Loaded& loaded() {
  static Loaded all;
  return all;
}

}  // namespace

PluginState load_plugin(const std::string& name, std::string& tried) {
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  if (all.libraries.contains(name)) return PluginState::Loaded;
  for (const auto& folder : plugin_folders()) {
    const std::filesystem::path file = folder / str("libathanor_", name, ".so");
    tried += str(tried.empty() ? "" : ", ", file.string());
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    all.libraries[name] = load_file(file);
    return PluginState::Loaded;
  }
  return PluginState::Missing;
}

std::vector<std::string> found_plugins() {
  constexpr std::string_view kStart = "libathanor_", kEnd = ".so";
  std::set<std::string> names;
  for (const auto& folder : plugin_folders()) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string file = entry.path().filename().string();
      if (file.size() <= kStart.size() + kEnd.size() || !file.starts_with(kStart) || !file.ends_with(kEnd)) continue;
      std::ifstream stream(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(stream), {}};
      if (text.find("athanor_register_plugin") != std::string::npos)
        names.insert(file.substr(kStart.size(), file.size() - kStart.size() - kEnd.size()));
    }
  }
  return {names.begin(), names.end()};
}

std::string plugin_note(const std::string& name) {
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  const auto found = all.libraries.find(name);
  void* note = found == all.libraries.end() ? nullptr : ::dlsym(found->second, "athanor_plugin_note");
  return note == nullptr ? std::string() : reinterpret_cast<const char* (*)()>(note)();
}

void warn_of_secret(const std::string& backend, const BackendOptions& options) {
  static std::atomic<bool> said{false};
  const bool has_secret = !options.secret.empty() || env::text("ATHANOR_JOB_SECRET");
  if (!has_secret || options.rank != 0 || options.size == 1 || said.exchange(true)) return;
  ATHANOR_LOG(Warning, "backend '", backend, "' does not authenticate: the job's secret protects the store and the ",
              "control channel, but not the connections that this backend's library makes between the ranks. Use the ",
              "backend tcp, or a network that strangers cannot reach");
}

}  // namespace athanor::distributed
