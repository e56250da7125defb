// athanor._C._cuda: devices that serve the name "cuda".

#include "athanor/tensor/cuda.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace athanor::python {
namespace {

Device cuda_device(int index) {
  return Device(DeviceType::CUDA, static_cast<DeviceIndex>(index < 0 ? cuda::current_device() : index));
}

void add_streams(nb::module_& m) {
  nb::class_<Stream>(m, "Stream")
      .def("__init__", [](Stream* self, int index) { new (self) Stream(cuda_device(index)); })
      .def_prop_ro("device_index", [](const Stream& s) { return static_cast<int>(s.device().index()); })
      .def("query", [](const Stream& s) { return waiting([&] { return s.query(); }); })
      .def("synchronize", [](const Stream& s) { waiting([&] { s.synchronize(); }); })
      .def("wait", [](const Stream& s, const Event& e) { waiting([&] { s.wait(e); }); });
  nb::class_<Event>(m, "Event")
      .def(nb::init<bool>(), "enable_timing"_a)
      .def("record", [](Event& e, const Stream& s) { waiting([&] { e.record(s); }); })
      .def("query", [](const Event& e) { return waiting([&] { return e.query(); }); })
      .def("synchronize", [](const Event& e) { waiting([&] { e.synchronize(); }); })
      .def("elapsed_time",
           [](const Event& e, const Event& end) { return waiting([&] { return e.elapsed_time(end); }); });
}

void add_memory(nb::module_& m) {
  m.def("memory_allocated", [](int i) { return cuda::memory_allocated(i); });
  m.def("max_memory_allocated", [](int i) { return cuda::max_memory_allocated(i); });
  m.def("memory_reserved", [](int i) { return cuda::memory_reserved(i); });
  m.def("max_memory_reserved", [](int i) { return cuda::max_memory_reserved(i); });
  m.def("memory_stats", [](int i) {
    const DeviceStats s = cuda::memory_stats(i);
    nb::dict d;
    const auto add = [&](const char* name, const DeviceStats::Stat& stat) {
      const std::string prefix = std::string(name) + ".all.";
      d[(prefix + "current").c_str()] = stat.current;
      d[(prefix + "peak").c_str()] = stat.peak;
      d[(prefix + "allocated").c_str()] = stat.allocated;
      d[(prefix + "freed").c_str()] = stat.freed;
    };
    add("allocated_bytes", s.allocated_bytes);
    add("reserved_bytes", s.reserved_bytes);
    add("allocation", s.allocation);
    d["num_ooms"] = s.num_ooms;
    d["limit"] = s.limit;
    d["tasks_enqueued"] = s.tasks_enqueued;
    d["tasks_finished"] = s.tasks_finished;
    return d;
  });
  m.def("reset_peak_memory_stats", [](int i) { cuda::reset_peak_memory_stats(i); });
  m.def("empty_cache", [] { waiting([] { cuda::empty_cache(); }); });
  m.def("mem_get_info", [](int i) {
    const MemoryInfo info = cuda::mem_get_info(i);
    return nb::make_tuple(info.free, info.total);
  });
  m.def("set_per_process_memory_fraction",
        [](double fraction, int i) { cuda::set_per_process_memory_fraction(fraction, i); });
  m.def("set_memory_limit", [](std::size_t bytes, int i) { cuda::set_memory_limit(bytes, i); });
}

}  // namespace

void bind_cuda(nb::module_& core) {
  nb::module_ m = core.def_submodule("_cuda");
  m.def("is_available", &cuda::is_available);
  m.def("device_count", [] { return static_cast<int>(cuda::device_count()); });
  m.def("get_device_name", &cuda::get_device_name);
  nb::class_<cuda::DeviceProperties>(m, "_CudaDeviceProperties")
      .def_ro("name", &cuda::DeviceProperties::name)
      .def_ro("total_memory", &cuda::DeviceProperties::total_memory)
      .def_ro("multi_processor_count", &cuda::DeviceProperties::multi_processor_count)
      .def_prop_ro("major", [](const cuda::DeviceProperties&) { return 0; })
      .def_prop_ro("minor", [](const cuda::DeviceProperties&) { return 0; })
      .def("__repr__", [](const cuda::DeviceProperties& p) {
        return "_CudaDeviceProperties(name='" + p.name +
               "', major=0, minor=0, total_memory=" + std::to_string(p.total_memory >> 20) +
               "MB, multi_processor_count=" + std::to_string(p.multi_processor_count) + ")";
      });
  m.def("get_device_properties", &cuda::get_device_properties);
  m.def("current_device", &cuda::current_device);
  m.def("set_device", &cuda::set_device);
  m.def("synchronize", [](int i) { waiting([&] { cuda::synchronize(i); }); });
  add_streams(m);
  add_memory(m);
}

}  // namespace athanor::python
