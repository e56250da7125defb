// athanor._C._distributed: data parallelism. A module in Python is shown to the library as a tree of its parameters.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <future>
#include <map>

#include "athanor/distributed/groups.h"
#include "athanor/parallel/average_gradients.h"
#include "athanor/parallel/comm_hooks.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/ddp.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/parallel/sync_batch_norm.h"
#include "athanor/tensor/stream.h"
#include "python/src/autograd.h"
#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace athanor::python {
namespace {

namespace par = athanor::nn::parallel;
using Group = distributed::ProcessGroupPtr;
using Named = std::vector<std::pair<std::string, Tensor>>;

/// The parameters and buffers of a Python module under their names.
class Tree final : public nn::Module {
 public:
  Tree(const Named& parameters, const Named& buffers) : Module("Tree") {
    for (const auto& [name, tensor] : parameters) {
      const auto [module, key] = place(name);
      module->register_parameter(key, tensor, tensor.requires_grad());
    }
    for (const auto& [name, tensor] : buffers) {
      const auto [module, key] = place(name);
      module->register_buffer(key, tensor);
      buffers_.push_back({module, key, tensor});
    }
  }
  /// Python modules may put another tensor in the place of a buffer.
  void replace_buffers(const std::vector<Tensor>& now) {
    ATHANOR_CHECK(now.size() == buffers_.size(), "DistributedDataParallel: the module had ", buffers_.size(),
                  " buffers when it was wrapped, and has ", now.size(), " now");
    for (std::size_t i = 0; i < now.size(); ++i) {
      Entry& e = buffers_[i];
      if (e.tensor.impl() == now[i].impl()) continue;
      e.module->unregister_buffer(e.key);
      e.module->register_buffer(e.key, now[i]);
      e.tensor = now[i];
    }
  }

 private:
  struct Entry {
    nn::Module* module;
    std::string key;
    Tensor tensor;
  };
  std::pair<nn::Module*, std::string> place(const std::string& name) {
    nn::Module* module = this;
    std::size_t begin = 0;
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
      std::shared_ptr<nn::Module>& child = children_[name.substr(0, dot)];
      if (!child) {
        child = std::make_shared<nn::Module>("Module");
        module->register_module(name.substr(begin, dot - begin), child);
      }
      module = child.get();
      begin = dot + 1;
    }
    return {module, name.substr(begin)};
  }
  std::map<std::string, std::shared_ptr<nn::Module>> children_;
  std::vector<Entry> buffers_;
};

// hook(bucket) -> something whose wait() gives the bucket's new values, or a list that begins with them.
using SharedHook = std::shared_ptr<std::optional<PythonCallable>>;
par::CommHook python_hook(const SharedHook& hook) {
  return [hook](par::GradBucket& bucket) {
    const Locked lock;
    ATHANOR_CHECK(*hook, "the communication hook is gone with its DistributedDataParallel");
    const nb::object future = nb::borrow((*hook)->get())(par::GradBucket(bucket));
    if (!nb::hasattr(future, "wait"))
      ATHANOR_THROW(TypeError, "a communication hook should return a Future, got ", Py_TYPE(future.ptr())->tp_name);
    return std::async(std::launch::deferred, [result = PythonCallable(future.ptr())] {
      const Locked again;
      nb::object value = nb::borrow(result.get()).attr("wait")();
      if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) value = value[0];
      if (!is_tensor(value.ptr()))
        ATHANOR_THROW(TypeError, "the Future of a communication hook should hold a Tensor, got ",
                      Py_TYPE(value.ptr())->tp_name);
      return unwrap(value.ptr());
    });
  };
}

class Ddp final : public par::DistributedDataParallelBase {
 public:
  Ddp(std::shared_ptr<Tree> tree, const par::DistributedDataParallelOptions& options)
      : DistributedDataParallelBase(tree, options), tree_(std::move(tree)) {}
  void before_forward(const std::vector<Tensor>& buffers) {
    tree_->replace_buffers(buffers);
    DistributedDataParallelBase::before_forward();
  }
  using DistributedDataParallelBase::after_forward;

  void set_hook(const SharedHook& hook) {
    register_comm_hook(python_hook(hook));
    hook_ = hook;
  }
  /// The hook in Python, if what holds it is this wrapper alone: a graph that waits for its backward needs it, too.
  std::optional<PythonCallable>* own_hook() const {
    const bool alone = weak_from_this().use_count() <= 1 && reducer().weak_from_this().use_count() <= 1;
    return alone && hook_ && *hook_ ? hook_.get() : nullptr;
  }

 private:
  SharedHook hook_;
  std::shared_ptr<Tree> tree_;
};

/// A `with` block: enter() begins what it stands for, exit() ends it.
struct NoSync {
  std::shared_ptr<Ddp> ddp;
  std::optional<par::NoSyncGuard> guard;
};

/// Something with collectives in each step that is written in Python; answered by a JoinHook of its own.
class PythonJoinable final : public par::Joinable {
 public:
  PythonJoinable(nb::handle hook, Group group)
      : hook_(hook.ptr()), group_(distributed::group_or_default(std::move(group))) {}
  std::unique_ptr<par::JoinHook> join_hook(const par::JoinOptions&) override { return std::make_unique<Hook>(hook_); }
  Group join_process_group() const override { return group_; }

 private:
  class Hook final : public par::JoinHook {
   public:
    explicit Hook(PythonCallable hook) : hook_(std::move(hook)) {}
    void main_hook() override {
      last_ = false;
      const Locked lock;
      nb::borrow(hook_.get()).attr("main_hook")();
    }
    void post_hook(int) override {
      const Locked lock;
      nb::borrow(hook_.get()).attr("post_hook")(last_);
    }

   private:
    PythonCallable hook_;
    bool last_ = true;  // nobody made a step after this rank's last one
  };
  PythonCallable hook_;
  Group group_;
};

struct JoinBlock {
  std::vector<std::shared_ptr<par::Joinable>> joined;
  par::JoinOptions options;
  std::unique_ptr<par::Join> join;
};

/// A result of the library's hooks. get() may be asked once; the value is kept.
struct BucketFuture {
  std::future<Tensor> pending;
  Tensor value;
  Tensor wait() {
    if (pending.valid()) value = pending.get();
    return value;
  }
};
std::shared_ptr<BucketFuture> bucket_future(std::future<Tensor> f) {
  return std::make_shared<BucketFuture>(BucketFuture{std::move(f), {}});
}

std::shared_ptr<Ddp> make_ddp(const Named& parameters, const Named& buffers, Group group, nb::handle device,
                              bool broadcast_buffers, bool init_sync, double bucket_cap_mb, bool static_graph,
                              std::optional<bool> overlap) {
  par::DistributedDataParallelOptions options;
  options.process_group(std::move(group))
      .broadcast_buffers(broadcast_buffers)
      .init_sync(init_sync)
      .bucket_cap_mb(bucket_cap_mb)
      .static_graph(static_graph)
      .overlap(overlap);
  if (!device.is_none()) options.device_ids({to_device(device.ptr())});
  auto tree = std::make_shared<Tree>(parameters, buffers);
  return waiting([&] { return std::make_shared<Ddp>(std::move(tree), options); });
}

// A hook's state may be the wrapper, which holds the hook.
int traverse_ddp(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  if (const auto* hook = nb::inst_ptr<Ddp>(self)->own_hook()) Py_VISIT((*hook)->get());
  return 0;
}
int clear_ddp(PyObject* self) {
  if (auto* hook = nb::inst_ptr<Ddp>(self)->own_hook()) const auto dropped = std::exchange(*hook, std::nullopt);
  return 0;
}
PyType_Slot ddp_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_ddp)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear_ddp)},
                           {0, nullptr}};

void add_ddp(nb::module_& m) {
  nb::class_<Ddp>(m, "_Ddp", nb::type_slots(ddp_slots))
      .def("before_forward",
           [](Ddp& d, const std::vector<Tensor>& buffers) { waiting([&] { d.before_forward(buffers); }); })
      .def("after_forward", &Ddp::after_forward)
      .def("register_comm_hook",
           [](Ddp& d, nb::callable hook) {
             d.set_hook(std::make_shared<std::optional<PythonCallable>>(PythonCallable(hook.ptr())));
           })
      .def("overlaps", [](const Ddp& d) { return d.reducer().overlaps(); })
      .def("in_shared_memory", [](const Ddp& d) { return d.reducer().in_shared_memory(); })
      .def("buckets", [](const Ddp& d) { return d.reducer().buckets(); })
      .def_prop_ro("process_group", [](const Ddp& d) { return d.process_group(); });
  m.def("_make_ddp", make_ddp, "parameters"_a, "buffers"_a, "group"_a.none(), "device"_a.none(), "broadcast_buffers"_a,
        "init_sync"_a, "bucket_cap_mb"_a, "static_graph"_a, "overlap"_a.none());
  nb::class_<NoSync>(m, "_NoSync")
      .def("__init__",
           [](NoSync* self, std::shared_ptr<Ddp> d) {
             new (self) NoSync{std::move(d), std::nullopt};
           })
      .def("enter", [](NoSync& n) { n.guard.emplace(*n.ddp); })
      .def("exit", [](NoSync& n) { n.guard.reset(); });
  nb::class_<PythonJoinable>(m, "_Joinable")
      .def(nb::init<nb::handle, Group>(), "hook"_a, "group"_a.none())
      .def("notify", [](PythonJoinable& j) { waiting([&] { par::Join::notify(j); }); });
  nb::class_<JoinBlock>(m, "_Join")
      .def("__init__",
           [](JoinBlock* self, nb::sequence parts, bool divide, bool enable, bool early) {
             std::vector<std::shared_ptr<par::Joinable>> joined;
             for (nb::handle part : parts)
               if (nb::isinstance<Ddp>(part))
                 joined.push_back(nb::cast<std::shared_ptr<Ddp>>(part));
               else
                 joined.push_back(nb::cast<std::shared_ptr<PythonJoinable>>(part));
             new (self) JoinBlock{std::move(joined), {divide, enable, early}, nullptr};
           })
      .def("enter",
           [](JoinBlock& b) {
             std::vector<par::Joinable*> joinables;
             for (const auto& j : b.joined) joinables.push_back(j.get());
             if (b.options.enable) b.join = std::make_unique<par::Join>(joinables, b.options);
           })
      .def("exit", [](JoinBlock& b, bool well) {
        if (b.join && well) waiting([&] { b.join->answer(); });
        b.join.reset();
      });
  m.def(
      "restore_layout", [](const Tensor& t) { static_cast<void>(t.storage()->data()); }, "tensor"_a,
      "Puts values of a layout of the library's own into the plain order, enqueued with the device's other work.");
  m.def("balance_by_cost", &par::balance_by_cost);
  m.def(
      "synchronize", [](Device device) { waiting([&] { athanor::synchronize(device); }); }, "device"_a,
      "Waits for what a device was given.");
  m.def("all_devices", &par::all_devices, "The virtual devices, or the host if there are none.");
  m.def(
      "pipeline_steps",
      [](bool alternate, std::int64_t stages, std::int64_t micro_batches) {
        std::vector<std::vector<std::pair<std::int64_t, bool>>> table;
        for (const auto& steps : par::pipeline_steps(
                 alternate ? par::PipelineSchedule::OneForwardOneBackward : par::PipelineSchedule::FillDrain, stages,
                 micro_batches)) {
          auto& row = table.emplace_back();
          for (const par::PipelineStep& step : steps) row.emplace_back(step.micro_batch, step.backward);
        }
        return table;
      },
      "alternate"_a, "stages"_a, "micro_batches"_a,
      "For each stage, its micro-batches and whether backward, in order.");
  m.def(
      "average_gradients",
      [](const std::vector<Tensor>& parameters, Group g) { waiting([&] { par::average_gradients(parameters, g); }); },
      "parameters"_a, "group"_a.none() = nb::none());
}

void add_hooks(nb::module_& m) {
  namespace h = par::comm_hooks;
  nb::class_<par::GradBucket>(m, "GradBucket", "Gradients on their way between the ranks.")
      .def("index", &par::GradBucket::index, "Its number, in the order in which buckets are reduced.")
      .def("is_last", &par::GradBucket::is_last, "Whether it is the last of this backward.")
      .def("buffer", &par::GradBucket::buffer, "All gradients in one flat tensor.")
      .def("set_buffer", &par::GradBucket::set_buffer, "buffer"_a, "Puts a tensor of the same shape in its place.")
      .def("gradients", &par::GradBucket::gradients, "Views of the buffer, one per parameter.")
      .def("parameters", &par::GradBucket::parameters, "The parameters, in the order of the gradients.");
  nb::class_<BucketFuture>(m, "_BucketFuture")
      .def("wait", [](BucketFuture& f) { return waiting([&] { return f.wait(); }); })
      .def("done", [](const BucketFuture& f) {
        return !f.pending.valid() || f.pending.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      });
  m.def(
      "allreduce_hook",
      [](Group g, par::GradBucket& b) { return waiting([&] { return bucket_future(h::allreduce_hook(g, b)); }); },
      "group"_a.none(), "bucket"_a);
  m.def(
      "fp16_compress_hook",
      [](Group g, par::GradBucket& b) { return waiting([&] { return bucket_future(h::fp16_compress_hook(g, b)); }); },
      "group"_a.none(), "bucket"_a);
  m.def(
      "bf16_compress_hook",
      [](Group g, par::GradBucket& b) { return waiting([&] { return bucket_future(h::bf16_compress_hook(g, b)); }); },
      "group"_a.none(), "bucket"_a);
  nb::class_<h::PowerSGDState>(m, "_PowerSGDState")
      .def_prop_ro("iter", &h::PowerSGDState::iter)
      .def("compression_rate", &h::PowerSGDState::compression_rate);
  m.def(
      "_power_sgd_state",
      [](Group g, std::int64_t rank, std::int64_t start, double rate, bool feedback, bool warm, double epsilon,
         std::uint64_t seed) {
        h::PowerSGDOptions o;
        o.matrix_approximation_rank = rank;
        o.start_powerSGD_iter = start;
        o.min_compression_rate = rate;
        o.use_error_feedback = feedback;
        o.warm_start = warm;
        o.orthogonalization_epsilon = epsilon;
        o.random_seed = seed;
        return std::make_shared<h::PowerSGDState>(std::move(g), o);
      },
      "group"_a.none(), "rank"_a, "start"_a, "rate"_a, "feedback"_a, "warm"_a, "epsilon"_a, "seed"_a);
  m.def("powerSGD_hook", [](std::shared_ptr<h::PowerSGDState> state, par::GradBucket& b) {
    return waiting([&] { return bucket_future(h::powerSGD_hook(state, b)); });
  });
}

Tensor sync_batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                       const Tensor& bias, bool training, double momentum, double eps, Group group) {
  return waiting([&] {
    return nn::functional::sync_batch_norm(
        input, running_mean, running_var,
        nn::functional::BatchNormFuncOptions().weight(weight).bias(bias).training(training).momentum(momentum).eps(eps),
        group);
  });
}

}  // namespace

void bind_parallel(nb::module_& core) {
  auto m = nb::cast<nb::module_>(core.attr("_distributed"));
  add_ddp(m);
  add_hooks(m);
  m.def("sync_batch_norm", sync_batch_norm, "input"_a, "running_mean"_a.none(), "running_var"_a.none(),
        "weight"_a.none(), "bias"_a.none(), "training"_a, "momentum"_a, "eps"_a, "group"_a.none());
}

}  // namespace athanor::python
