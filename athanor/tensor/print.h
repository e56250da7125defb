#pragma once
/// Text forms of tensors: PyTorch's Python repr, `tensor([[1., 2.]])`, and libtorch's stream form with its
/// `[ CPUFloatType{1,2} ]` line. Both take a view of host memory; all functions are thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "athanor/tensor/view.h"

namespace athanor {

/// The options of torch.set_printoptions with its defaults.
struct PrintOptions {
  int precision = 4;              ///< digits after the point
  std::int64_t threshold = 1000;  ///< tensors with more elements are summarized
  std::int64_t edgeitems = 3;     ///< entries at each end of a summarized dim
  std::int64_t linewidth = 80;
  std::optional<bool> sci_mode;  ///< force scientific notation on or off; decided by the values if not given
};

/// What follows the values.
struct PrintSuffixes {
  std::string_view device;   ///< "cuda:0" or "cpu:1"; empty where PyTorch shows none
  std::string_view grad_fn;  ///< "AddBackward0"; empty if there is none
  bool requires_grad = false;
  std::string_view package = "torch";  ///< the module in "dtype=torch.float64"
};

/// `tensor(...)`, byte for byte as Python's PyTorch. The dtype is shown unless it is the default dtype, int64 or bool;
/// empty tensors show it unless it is the default dtype, and their size.
std::string format_tensor(const View& view, const PrintOptions& options = {}, const PrintSuffixes& suffixes = {});

/// libtorch's `std::cout << tensor`, without a line end after the last line. `backend` is "CPU" or "CUDA".
std::string format_tensor_cpp(const View& view, std::string_view backend = "CPU", std::int64_t linewidth = 80);

}  // namespace athanor
