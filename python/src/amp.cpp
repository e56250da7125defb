// Automatic mixed precision: the state of the calling thread.

#include <nanobind/nanobind.h>

#include "athanor/ops/autocast.h"
#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {

void bind_amp(nb::module_& m) {
  m.def("_autocast_state", [] {
    const autocast::State s = autocast::state();
    return nb::make_tuple(s.enabled, s.dtype, s.cache);
  });
  m.def("_enter_autocast", [](bool enabled, DType dtype, bool cache) {
    ATHANOR_CHECK_VALUE(is_half(dtype), "autocast: the dtype should be bfloat16 or float16, got ", dtype);
    autocast::set_state({enabled, cache, dtype});
    autocast::increment_nesting();
  });
  m.def("_leave_autocast", [](bool enabled, DType dtype, bool cache) {
    if (autocast::decrement_nesting() == 0) autocast::clear_cache();
    autocast::set_state({enabled, cache, dtype});
  });
  m.def(
      "is_autocast_enabled", [](nb::object) { return autocast::is_autocast_enabled(); },
      nb::arg("device_type") = nb::none(), "Whether ops of this thread choose their precision themselves.");
  m.def(
      "get_autocast_dtype", [](nb::object) { return autocast::get_autocast_dtype(); },
      nb::arg("device_type") = nb::none(), "The lower precision that they choose.");
}

}  // namespace athanor::python
