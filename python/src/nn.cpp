// What athanor.nn takes from the library beside ops: passes over lists of gradients.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "athanor/nn/utils.h"
#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {

void bind_nn(nb::module_& m) {
  m.def(
      "_total_norm",
      [](const std::vector<Tensor>& tensors, double norm_type) {
        return nn::utils::get_total_norm(tensors, norm_type);
      },
      nb::call_guard<Unlocked>(), "The norm of all tensors taken as one vector, in one pass.");
  m.def(
      "_scale_all_", [](const std::vector<Tensor>& tensors, double factor) { nn::utils::scale_all_(tensors, factor); },
      nb::call_guard<Unlocked>(), "Multiplies every tensor by a number in place, in one pass.");
}

}  // namespace athanor::python
