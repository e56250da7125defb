#include "parity/recorder.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "athanor/autograd/autograd.h"

namespace athanor::parity {

namespace {

/// Larger tensors are the op table's own business.
constexpr std::int64_t kGreatest = 700;

struct State {
  bool active = false;
  std::string row;
  std::string lines;
  io::NamedTensors tensors;
};
State& state() {
  static State s;
  return s;
}

std::string number(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", v);
  const std::string s = text;
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}
std::string in_quotes(std::string_view s) { return "\"" + std::string(s) + "\""; }
template <class List, class F>
std::string list_of(const List& list, F&& each) {
  std::string out = "[";
  for (std::size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + each(list[i]);
  return out + "]";
}

/// Weights of results, for their gradients: no two alike.
Tensor weights_like(const Tensor& t) {
  const Tensor w = empty(t.sizes(), kDouble);
  double* out = w.numel() ? w.data_ptr<double>() : nullptr;
  for (std::int64_t i = 0; i < w.numel(); ++i) out[i] = 0.5 + static_cast<double>(i * 37 % 64) / 64;
  return w.to(t.dtype());
}

}  // namespace

bool Recorder::wants_calls() { return state().active; }

Recorder::Noting::Noting(std::string row) {
  state().row = std::move(row);
  state().active = true;
}
Recorder::Noting::~Noting() { state().active = false; }

void Recorder::write(const std::string& folder) {
  io::save_safetensors(folder + "/tensors.safetensors", state().tensors);
  std::ofstream out(folder + "/calls.jsonl", std::ios::binary);
  out << state().lines;
  out.close();
  ATHANOR_CHECK(out.good(), "cannot write ", folder, "/calls.jsonl");
}

void* hidden_function(void* own) {
  Dl_info info{};
  ATHANOR_CHECK(dladdr(own, &info) && info.dli_sname && info.dli_saddr == own,
                "a recorder's symbol is not exported by the program");
  void* real = dlsym(RTLD_NEXT, info.dli_sname);
  ATHANOR_CHECK(real && real != own, "the library has no function ", info.dli_sname);
  return real;
}

Call::Quiet::Quiet() : before(std::exchange(state().active, false)) {}
Call::Quiet::~Quiet() { state().active = before; }

Call::Call(const char* name, const char* overload)
    : op_(name),
      text_("{\"op\": " + in_quotes(name) + ", \"overload\": " + in_quotes(overload) +
            ", \"row\": " + in_quotes(state().row) + ", \"args\": {\"\": null") {}

bool Call::differentiable(std::string_view argument) const {
  // Running statistics are changed by the op; class weights are constants.
  if (argument.starts_with("running_")) return false;
  return argument != "weight" || !(op_.starts_with("nll_loss") || op_ == "cross_entropy_loss");
}

void Call::put(const char* name, const std::string& json) { text_ += ", " + in_quotes(name) + ": " + json; }
void Call::note_none(const char* name) { put(name, "null"); }

std::string Call::store(const TensorBase& t) {
  if (!t.defined()) return "null";
  if (t.numel() > kGreatest) too_large_ = true;
  if (too_large_) return "null";
  const std::string name = std::to_string(state().tensors.size());
  state().tensors.emplace_back(name, Tensor(t).detach().clone(MemoryFormat::Contiguous));
  return "{\"t\": " + name + "}";
}
std::string Call::store_all(const Tensors& list) {
  return list_of(list, [this](const TensorBase& t) { return store(t); });
}

void Call::note(const char* name, const TensorBase& t) {
  const Quiet quiet;
  put(name, store(t));
  if (!t.defined()) return;
  Tensor copy = Tensor(t).detach().clone();
  if (t.is_floating_point() && differentiable(name)) copy.requires_grad_();
  leaves_.emplace_back(t, copy);
}
void Call::note(const char* name, const TensorBaseList& list) {
  const Quiet quiet;
  put(name, "{\"list\": " + store_all(Tensors(list.begin(), list.end())) + "}");
  for (const TensorBase& t : list) {
    if (!t.defined()) continue;
    Tensor copy = Tensor(t).detach().clone();
    if (t.is_floating_point()) copy.requires_grad_();
    leaves_.emplace_back(t, copy);
  }
}
void Call::note(const char* name, std::int64_t v) { put(name, std::to_string(v)); }
void Call::note(const char* name, bool v) { put(name, v ? "true" : "false"); }
void Call::note(const char* name, double v) { put(name, number(v)); }
void Call::note(const char* name, const Scalar& v) {
  if (v.isBoolean())
    note(name, v.toBool());
  else if (v.isFloatingPoint())
    note(name, v.toDouble());
  else
    note(name, v.toLong());
}
void Call::note(const char* name, std::string_view v) { put(name, in_quotes(v)); }
void Call::note(const char* name, IntArrayRef v) {
  put(name, list_of(v, [](std::int64_t i) { return std::to_string(i); }));
}
void Call::note(const char* name, const OptionalIntArrayRef& v) {
  if (v.has_value())
    note(name, *v);
  else
    note_none(name);
}
void Call::note(const char* name, ArrayRef<double> v) { put(name, list_of(v, number)); }
void Call::note(const char* name, DType v) { put(name, "{\"dtype\": " + in_quotes(dtype_name(v)) + "}"); }
void Call::note(const char* name, Device v) { put(name, "{\"device\": " + in_quotes(v.str()) + "}"); }
void Call::note(const char* name, MemoryFormat v) {
  put(name, "{\"format\": " + std::to_string(static_cast<int>(v)) + "}");
}
void Call::note(const char* name, const TensorOptions& v) {
  put(name, v.has_dtype() ? "{\"options\": " + in_quotes(dtype_name(v.dtype())) + "}" : "{\"options\": null}");
}
void Call::note(const char* name, const std::optional<Generator>&) { note_none(name); }

const TensorBase& Call::leaf(const TensorBase& t) const {
  for (const auto& [argument, leaf] : leaves_)
    if (argument.impl() == t.impl()) return leaf;
  return t;
}
TensorBaseList Call::leaves(const TensorBaseList& list) {
  Tensors out;
  for (const TensorBase& t : list) out.push_back(leaf(t));
  lists_.push_back(std::move(out));
  return lists_.back();
}

void Call::note_results(const Tensors& results) {
  text_ += "}, \"results\": {\"\": null";
  put("all", store_all(results));
}

void Call::note_gradients(const std::function<Tensors()>& again) {
  if (too_large_ || leaves_.empty()) return;
  std::vector<Tensor> wanted, outputs, seeds;
  for (const auto& [argument, leaf] : leaves_)
    if (leaf.requires_grad()) wanted.emplace_back(leaf);
  if (wanted.empty()) return;
  try {
    Tensors seeds_noted;
    std::string which = "[";
    const Tensors results = again();
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined() || !results[i].requires_grad()) continue;
      which += (outputs.empty() ? "" : ", ") + std::to_string(i);
      outputs.emplace_back(results[i]);
      seeds.push_back(weights_like(outputs.back()));
      seeds_noted.push_back(seeds.back());
    }
    if (outputs.empty()) return;
    const auto grads = autograd::grad(outputs, wanted, seeds, std::nullopt, false, true);
    put("differentiated", which + "]");
    put("seeds", store_all(seeds_noted));
    put("gradients", store_all(Tensors(grads.begin(), grads.end())));
  } catch (const std::exception& e) {
    std::string what = e.what();
    for (char& c : what)
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = ' ';
    put("gradient_error", in_quotes(what));
  }
}

void Call::finish() {
  if (!too_large_) state().lines += text_ + "}}\n";
}

}  // namespace athanor::parity
