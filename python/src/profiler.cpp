// athanor._C._profiler: the library's profiler; see athanor.profiler.

#include "athanor/profiler/profiler.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace athanor::python {
namespace {

using profiler::EventAverage;
using profiler::EventKind;

/// A scope that begins and ends by calls, in one thread.
class NamedScope {
 public:
  explicit NamedScope(std::string name) : name_(std::move(name)) {}
  void begin() {
    if (profiler::detail::is_recording()) token_ = profiler::detail::begin({.name = name_, .kind = EventKind::Scope});
  }
  void end() {
    if (token_ != 0) profiler::detail::end(token_);
    token_ = 0;
  }

 private:
  std::string name_;
  std::uint64_t token_ = 0;
};

}  // namespace

void bind_profiler(nb::module_& core) {
  nb::module_ m = core.def_submodule("_profiler", "What ops cost; see athanor.profiler.");
  nb::class_<profiler::Event>(m, "Event")
      .def_ro("name", &profiler::Event::name)
      .def_prop_ro("kind", [](const profiler::Event& e) { return profiler::category_of(e.kind); })
      .def_ro("thread", &profiler::Event::thread)
      .def_ro("device", &profiler::Event::device)
      .def_ro("start", &profiler::Event::start)
      .def_ro("duration", &profiler::Event::duration)
      .def_ro("self", &profiler::Event::self)
      .def_ro("parent", &profiler::Event::parent)
      .def_ro("sequence", &profiler::Event::sequence)
      .def_ro("shapes", &profiler::Event::shapes)
      .def_ro("bytes", &profiler::Event::bytes)
      .def_ro("self_bytes", &profiler::Event::self_bytes);
  nb::class_<EventAverage>(m, "EventAverage")
      .def("__init__",
           [](EventAverage* a, std::string name, std::string shapes, std::int64_t count, std::int64_t total,
              std::int64_t self, std::int64_t bytes, std::int64_t self_bytes) {
             new (a) EventAverage{std::move(name), std::move(shapes), count, total, self, bytes, self_bytes};
           })
      .def_ro("name", &EventAverage::name)
      .def_ro("shapes", &EventAverage::shapes)
      .def_ro("count", &EventAverage::count)
      .def_ro("total", &EventAverage::total)
      .def_ro("self", &EventAverage::self)
      .def_ro("bytes", &EventAverage::bytes)
      .def_ro("self_bytes", &EventAverage::self_bytes);
  m.def(
      "table",
      [](const std::vector<EventAverage>& rows, bool with_memory, const std::string& sort_by, std::int64_t row_limit) {
        return profiler::KeyAverages(rows, with_memory).table(sort_by, row_limit);
      },
      "rows"_a, "with_memory"_a, "sort_by"_a, "row_limit"_a);
  nb::class_<profiler::Profile>(m, "Profile")
      .def("__init__",
           [](profiler::Profile* p, bool record_shapes, bool profile_memory) {
             new (p) profiler::Profile({.record_shapes = record_shapes, .profile_memory = profile_memory});
           })
      .def("stop", [](profiler::Profile& p) { waiting([&] { p.stop(); }); })
      .def("events", [](const profiler::Profile& p) { return p.events(); })
      .def("threads",
           [](const profiler::Profile& p) {
             std::vector<std::string> names;
             for (const profiler::ThreadInfo& t : p.threads()) names.push_back(t.name);
             return names;
           })
      .def("dropped", &profiler::Profile::dropped)
      .def("key_averages", [](const profiler::Profile& p, bool by_shape) { return p.key_averages(by_shape).rows(); })
      .def("export_chrome_trace",
           [](const profiler::Profile& p, const std::string& path) { waiting([&] { p.export_chrome_trace(path); }); });
  nb::class_<NamedScope>(m, "NamedScope")
      .def(nb::init<std::string>())
      .def("begin", &NamedScope::begin)
      .def("end", &NamedScope::end);
}

}  // namespace athanor::python
