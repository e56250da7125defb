#pragma once
/// Plug-ins: backends in shared objects of their own, loaded when first asked for. The object libathanor_NAME.so is
/// looked for in the folders of ATHANOR_PLUGIN_PATH (separated by colons), then beside the library. It is never
/// unloaded. One translation unit of it says
///
///     ATHANOR_BACKEND_PLUGIN(register_backend("name", make_it);)

#include <string>
#include <vector>

namespace athanor::distributed {

/// Changes whenever a plug-in has to be compiled anew.
inline constexpr int kPluginAbi = 3;

struct BackendOptions;

/// For a backend whose library has connections of its own that prove nothing: if the job has a secret, says once in a
/// process, on rank 0, that it does not protect them.
void warn_of_secret(const std::string& backend, const BackendOptions& options);

enum class PluginState { Loaded, Missing };
/// Loads the plug-in of that name, once. Throws DistError if there is one that cannot be loaded or was built for
/// another version of the library. `tried` receives the files looked for.
PluginState load_plugin(const std::string& name, std::string& tried);

/// The names of the plug-ins in those folders, sorted: files of such a name that say they are one. None is loaded, so
/// one that lacks a library of its own, or is of another version, is among them.
std::vector<std::string> found_plugins();

/// What a loaded plug-in says of the library it stands on: a line of text, from a function of it that it need not have,
/// `extern "C" const char* athanor_plugin_note()`. Empty if it has none or is not loaded. `athanor env --backends`
/// prints it. To be asked after a group was made: some libraries know only then.
std::string plugin_note(const std::string& name);

}  // namespace athanor::distributed

#define ATHANOR_BACKEND_PLUGIN(...)                                                    \
  extern "C" __attribute__((visibility("default"))) const int athanor_plugin_abi;      \
  const int athanor_plugin_abi = ::athanor::distributed::kPluginAbi;                   \
  extern "C" __attribute__((visibility("default"))) void athanor_register_plugin();    \
  void athanor_register_plugin() {                                                     \
    using namespace ::athanor::distributed; /* NOLINT(google-build-using-namespace) */ \
    __VA_ARGS__                                                                        \
  }
