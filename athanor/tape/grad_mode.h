#pragma once
/// Per-thread switches of recording.

namespace athanor {

namespace detail {
struct TapeState {
  bool grad = true;
  bool inference = false;
};
// initial-exec: one load instead of a call; the library is loaded at program start or by one dlopen.
extern thread_local TapeState tape_state __attribute__((tls_model("initial-exec")));
}  // namespace detail

/// Whether ops are recorded in this thread.
struct GradMode {
  static bool is_enabled() { return detail::tape_state.grad; }
  static void set_enabled(bool on) { detail::tape_state.grad = on; }
};

/// Sets grad mode for its scope.
class AutoGradMode {
 public:
  explicit AutoGradMode(bool on) : previous_(detail::tape_state.grad) { detail::tape_state.grad = on; }
  ~AutoGradMode() { detail::tape_state.grad = previous_; }
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;

 private:
  bool previous_;
};

struct NoGradGuard : AutoGradMode {
  NoGradGuard() : AutoGradMode(false) {}
};

/// No recording, and the tensors made carry no version tracking or view history: they may not be used in autograd
/// later.
class InferenceMode {
 public:
  explicit InferenceMode(bool on = true) : previous_(detail::tape_state) {
    detail::tape_state.inference = on;
    detail::tape_state.grad = !on;
  }
  ~InferenceMode() { detail::tape_state = previous_; }
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;
  static bool is_enabled() { return detail::tape_state.inference; }

 private:
  detail::TapeState previous_;
};

}  // namespace athanor
