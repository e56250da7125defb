#include "athanor/distributed/backend.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "athanor/distributed/backend/native.h"
#include "athanor/distributed/plugin.h"
#include "athanor/tensor/stream.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr const char* kOpNames[] = {"broadcast",      "all_reduce", "reduce",  "all_gather", "gather", "scatter",
                                    "reduce_scatter", "all_to_all", "barrier", "send",       "recv"};

bool takes_reduce_op(OpType op) {
  return op == OpType::AllReduce || op == OpType::Reduce || op == OpType::ReduceScatter;
}

// Backends that come as plug-ins, and what brings them.
struct KnownPlugin {
  const char* name;
  const char* needs;
};
constexpr KnownPlugin kKnownPlugins[] = {
    {"gloo", "Gloo (Debian: libgloo-dev) when Athanor is built"},
    {"mpi", "an MPI library (Debian: libopenmpi-dev) when Athanor is built"},
    {"nccl",
     "CUDA and NCCL (NVIDIA's packages cuda-toolkit and libnccl-dev), from a source that is not part of Athanor"},
};

struct Registry {
  std::mutex mutex;
  // The library's own.
  std::map<std::string, BackendFactory> factories = {{"tcp", make_native_backend}};
};
Registry& registry() {
  static auto* table = new Registry;  // lives until the process is gone: groups may end after static destructors began
  return *table;
}

bool plain_name(const std::string& name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

// The factory, if the name is known by now. Where virtual devices serve cuda, the native backend serves nccl.
BackendFactory find_factory(const std::string& name) {
  if (name == "nccl" && athanor::detail::cuda_queue_count() > 0) return make_native_backend;
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  const auto found = table.factories.find(name);
  return found == table.factories.end() ? nullptr : found->second;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += str(text.empty() ? "" : ", ", name);
  return text;
}

// "tcp; as plug-ins: gloo, mpi".
std::string what_is_here() {
  std::vector<std::string> files = found_plugins();
  const std::vector<std::string> names = backend_names();
  std::erase_if(files, [&](const auto& name) { return std::count(names.begin(), names.end(), name) != 0; });
  return joined(names) + (files.empty() ? "" : "; as plug-ins: " + joined(files));
}

}  // namespace

const char* op_name(OpType op) { return kOpNames[static_cast<int>(op)]; }

std::string Call::text() const {
  std::string out = op_name(op);
  if (takes_reduce_op(op)) out += str("(", reduce_name(reduce), user_operator.empty() ? "" : " ", user_operator, ")");
  if (op == OpType::Send)
    out += str(" to rank ", root);
  else if (op == OpType::Recv)
    out += root == kAnySource ? std::string(" from any rank") : str(" from rank ", root);
  else if (root >= 0)
    out += str(" with root ", root);
  if (op != OpType::Barrier) out += str(" of ", dtype_name(dtype), " ", IntArrayRef(shape.data(), shape.size()));
  const auto list = op == OpType::AllToAll ? parts.first(parts.size() / 2) : parts;
  if (std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) != list.end())
    out += str(" with parts of ", IntArrayRef(list.data(), list.size()), " elements");
  if (sequence != 0) out += str(", number ", sequence, " of the group");
  const std::string_view file = where.file_name();
  if (where.line() == 0 && !file.empty()) out += str(", in ", file);  // not a line, but what is done there
  if (where.line() != 0) out += str(", at ", file.substr(file.rfind('/') + 1), ":", where.line());
  return out;
}

bool Backend::supports(const ReduceOp& op, DType dtype) const {
  return op.kind() != ReduceOp::USER && reduces(op.kind(), dtype);
}

std::shared_ptr<void> Backend::allocate_shared(const Call&, std::size_t) { return nullptr; }

void register_backend(const std::string& name, BackendFactory factory) {
  ATHANOR_CHECK_VALUE(plain_name(name), "register_backend: '", name,
                      "' should be made of lower-case letters, digits and underscores");
  ATHANOR_CHECK_VALUE(factory != nullptr, "register_backend: '", name, "' has no factory");
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  ATHANOR_CHECK_VALUE(table.factories.emplace(name, std::move(factory)).second,
                      "register_backend: there is a backend '", name, "' already");
}

std::vector<std::string> backend_names() {
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  std::vector<std::string> names;
  for (const auto& [name, unused] : table.factories) names.push_back(name);
  return names;
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options) {
  BackendFactory factory = find_factory(name);
  std::string tried;
  if (!factory && plain_name(name) && load_plugin(name, tried) == PluginState::Loaded) factory = find_factory(name);
  if (factory) {
    auto backend = factory(options);
    ATHANOR_CHECK(backend && backend->rank() == options.rank && backend->size() == options.size, "backend '", name,
                  "': its factory should return a backend for rank ", options.rank, " of ", options.size);
    return backend;
  }
  for (const KnownPlugin& known : kKnownPlugins)
    if (name == known.name)
      throw DistError(
          str("backend '", name, "' is not here: it is a plug-in that is built with ", known.needs, ". Looked for ",
              tried, " (ATHANOR_PLUGIN_PATH names more folders). Here are: ", what_is_here()),
          ATHANOR_WHERE);
  ATHANOR_THROW(ValueError, "backend '", name, "' is unknown. Here are: ", what_is_here(),
                ". Known plug-ins are gloo, mpi, nccl; register_backend adds others");
}

std::string backend_problem(const std::string& name) {
  if (find_factory(name)) return {};
  std::string tried;
  try {
    if (plain_name(name) && load_plugin(name, tried) == PluginState::Loaded && find_factory(name)) return {};
  } catch (const DistError& e) {
    return e.what();
  }
  return "not here";
}

bool is_backend_available(const std::string& name) { return backend_problem(name).empty(); }

}  // namespace athanor::distributed
