// The backend "mpi": collectives of an MPI library (Open MPI, MPICH). Everything is started without blocking and asked
// after until its deadline, since a wait inside MPI could not be given up.
// The C++ bindings that MPI gave up long ago.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
// Open MPI's extensions; MPICH has its own in mpi.h.
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <atomic>
#include <climits>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/plugin.h"
#include "athanor/distributed/transport/wait.h"
#include "plugins/prepared.h"

namespace athanor::distributed::plugins {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DistBackendError(str("backend 'mpi': ", what, ": ", std::string_view(text, static_cast<std::size_t>(length))),
                         ATHANOR_WHERE);
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::Byte:
    case DType::Bool:
      return MPI_UINT8_T;
    case DType::Char:
      return MPI_INT8_T;
    case DType::Short:
      return MPI_INT16_T;
    case DType::Int:
      return MPI_INT32_T;
    case DType::Long:
      return MPI_INT64_T;
    case DType::Float:
      return MPI_FLOAT;
    case DType::Double:
      return MPI_DOUBLE;
    default:
      return MPI_UINT16_T;  // halves, which are only moved
  }
}

// Our own operators throughout: MPI's MIN and MAX lose NaN, it knows nothing of bool, and Open MPI 4.1's sums of 8 and
// 16 bit integers stop at the largest value instead of going round. One function for each, since an operator of MPI is
// a plain function.
using Function = void (*)(void*, void*, int*, MPI_Datatype*);
template <cpu::Combine kCombine, DType kType>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  const void* both[] = {inout, in};
  cpu::combine(inout, both, 2, *count, kType, kCombine);
}
template <cpu::Combine kCombine>
Function function_for(DType dtype) {
  return dispatch_all(
      dtype, [](auto tag) -> Function { return &combine<kCombine, dtype_of_v<typename decltype(tag)::type>>; });
}
Function function_for(cpu::Combine combine, DType dtype) {
  switch (combine) {
    case cpu::Combine::Sum:
      return function_for<cpu::Combine::Sum>(dtype);
    case cpu::Combine::Product:
      return function_for<cpu::Combine::Product>(dtype);
    case cpu::Combine::Min:
      return function_for<cpu::Combine::Min>(dtype);
    case cpu::Combine::Max:
      return function_for<cpu::Combine::Max>(dtype);
    case cpu::Combine::And:
      return function_for<cpu::Combine::And>(dtype);
    case cpu::Combine::Or:
      return function_for<cpu::Combine::Or>(dtype);
    default:
      return function_for<cpu::Combine::Xor>(dtype);
  }
}

// Starts MPI if the program has not, and ends it with the process. Threads beside each other need MPI_THREAD_MULTIPLE;
// with MPI_THREAD_SERIALIZED one call at a time enters MPI.
class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }
  std::unique_lock<std::mutex> enter() {
    return multiple_ ? std::unique_lock<std::mutex>() : std::unique_lock<std::mutex>(mutex_);
  }
  /// Made when first asked for, and kept.
  MPI_Op operation(cpu::Combine combine, DType dtype) {
    const std::lock_guard lock(operations_mutex_);
    MPI_Op& op = operations_[static_cast<std::size_t>(combine)][static_cast<std::size_t>(dtype)];
    if (op == MPI_OP_NULL) make(function_for(combine, dtype), op);
    return op;
  }
  void make(Function function, MPI_Op& op) {
    const auto turn = enter();
    check(MPI_Op_create(function, 1, &op), "MPI_Op_create");
  }

 private:
  Library() {
    int running = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&running);
    if (running == 0) {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
      std::atexit([] {
        int finalized = 0;
        MPI_Finalized(&finalized);
        if (finalized == 0 && !broken) MPI_Finalize();
      });
    } else {
      MPI_Query_thread(&provided);
    }
    if (provided < MPI_THREAD_SERIALIZED)
      throw DistError(str("backend 'mpi': MPI runs with ",
                          provided == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE",
                          ", but groups call it from threads of their own. Start it with MPI_Init_thread and at least "
                          "MPI_THREAD_SERIALIZED, or leave that to init_process_group"),
                      ATHANOR_WHERE);
    multiple_ = provided == MPI_THREAD_MULTIPLE;
    if (!multiple_)
      ATHANOR_LOG(Warning, "backend 'mpi': this MPI does not let several threads in at once; they take turns");
    for (auto& of_combine : operations_)
      for (MPI_Op& op : of_combine) op = MPI_OP_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

 public:
  /// After a failure others may be gone, and MPI_Finalize would wait for them.
  static inline std::atomic<bool> broken{false};

 private:
  bool multiple_ = false;
  std::mutex mutex_, operations_mutex_;
  MPI_Op operations_[8][kNumDTypes];
};

// User-defined operators. MPI gives an operator's function nothing that would tell one call from another, and runs it
// in whatever thread is in MPI at the time: every call under way has a slot with a function of its own.
struct Slot {
  std::optional<ReduceOp> reduce;  // nothing: the slot is free
  DType dtype{};
  MPI_Op op = MPI_OP_NULL;
  std::mutex mutex;
  std::exception_ptr error;

  // An exception must not go through MPI.
  void combine(void* in, void* inout, int count) noexcept {
    try {
      reduce->function()(inout, in, count, dtype);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }
};
constexpr std::size_t kSlots = 64;
Slot slots[kSlots];
std::mutex slots_mutex;

template <std::size_t kSlot>
void combine_by_slot(void* in, void* inout, int* count, MPI_Datatype*) {
  slots[kSlot].combine(in, inout, *count);
}
template <std::size_t... kSlot>
Function function_of(std::size_t slot, std::index_sequence<kSlot...>) {
  constexpr Function functions[] = {&combine_by_slot<kSlot>...};
  return functions[slot];
}

// The operator of one call.
class Operator {
 public:
  Operator(const ReduceOp& op, DType dtype) {
    if (!(op == ReduceOp::USER)) {
      op_ = Library::get().operation(combine_of(op.kind()), dtype);
      return;
    }
    const std::lock_guard lock(slots_mutex);
    for (Slot& slot : slots) {
      if (slot.reduce) continue;
      if (slot.op == MPI_OP_NULL)
        Library::get().make(function_of(static_cast<std::size_t>(&slot - slots), std::make_index_sequence<kSlots>()),
                            slot.op);
      slot.reduce = op;
      slot.dtype = dtype;
      slot.error = nullptr;
      slot_ = &slot;
      op_ = slot.op;
      return;
    }
    throw DistBackendError(str("backend 'mpi': more than ", kSlots, " calls with user-defined operators at once"),
                           ATHANOR_WHERE);
  }
  // What failed may still be under way: its slot is not used again.
  ~Operator() {
    if (slot_ == nullptr || std::uncaught_exceptions() > exceptions_) return;
    const std::lock_guard lock(slots_mutex);
    slot_->reduce.reset();
  }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  MPI_Op get() const { return op_; }
  /// After the call: throws what the operator has thrown.
  void check_thrown() const {
    if (slot_ == nullptr) return;
    const std::lock_guard lock(slot_->mutex);
    if (slot_->error) std::rethrow_exception(slot_->error);
  }

 private:
  MPI_Op op_ = MPI_OP_NULL;
  Slot* slot_ = nullptr;
  int exceptions_ = std::uncaught_exceptions();
};

// Of a call or a message, for as long as it waits.
struct Wait {
  enum Kind { Collective, Background, Message };
  Kind kind;
  std::string what;
  GroupWatch* watch;
  const std::atomic<bool>& aborted;
};

// Asks until it is done. Throws at the deadline; the request is left to MPI, which has no way to give it up. A message
// can be given up by who waits for it: nothing else is at its memory.
void finish(MPI_Request& request, MPI_Status* status, Deadline deadline, const Wait& wait) {
  Patience patience(true, wait.kind == Wait::Background);
  Deadline next_look = Deadline::after(kInterruptPeriod);
  while (true) {
    int done = 0;
    {
      const auto turn = Library::get().enter();
      check(MPI_Test(&request, &done, status), wait.what.c_str());
    }
    if (done != 0) return;
    if (wait.aborted)
      throw DistBackendError(str("backend 'mpi': ", wait.what, ": the group was aborted"), ATHANOR_WHERE);
    if (deadline.expired()) {
      Library::broken = true;
      throw DistBackendError(
          str("backend 'mpi': ", wait.what, ": not done in time; another rank did not come, hangs or is gone"),
          ATHANOR_WHERE);
    }
    if (wait.kind == Wait::Message && next_look.expired()) {
      check_interrupt();
      next_look = Deadline::after(kInterruptPeriod);
    }
    if (patience.endure()) continue;
    try {
      if (wait.watch != nullptr) wait.watch->look();
    } catch (const Error&) {
      Library::broken = true;
      throw;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

class MpiRequest final : public P2pRequest {
 public:
  /// `expected`: the bytes of a receive.
  MpiRequest(MPI_Request request, const Call& call, const std::atomic<bool>& aborted, int expected = -1)
      : request_(request), wait_{Wait::Message, call.text(), call.watch, aborted}, expected_(expected) {}
  ~MpiRequest() override {
    if (done_) return;
    const auto turn = Library::get().enter();
    MPI_Cancel(&request_);
    MPI_Request_free(&request_);
  }
  bool test() override {
    if (done_) return true;
    const auto turn = Library::get().enter();
    int done = 0;
    check(MPI_Test(&request_, &done, &status_), wait_.what.c_str());
    done_ = done != 0;
    check_size();
    return done_;
  }
  void wait(Deadline deadline) override {
    if (done_) return;
    finish(request_, &status_, deadline, wait_);
    done_ = true;
    check_size();
  }
  int source_rank() const override { return status_.MPI_SOURCE; }

 private:
  // MPI itself refuses only what is too long.
  void check_size() const {
    int got = 0;
    if (!done_ || expected_ < 0 || MPI_Get_count(&status_, MPI_BYTE, &got) != MPI_SUCCESS || got == expected_) return;
    throw DistBackendError(str("backend 'mpi': ", wait_.what, ": rank ", status_.MPI_SOURCE, " sent ", got,
                               " bytes, expected ", expected_, ". Both sides must agree"),
                           ATHANOR_WHERE);
  }

  MPI_Request request_;
  MPI_Status status_{};
  Wait wait_;
  int expected_;
  bool done_ = false;
};

int int_count(std::int64_t count, const Call& call) {
  ATHANOR_CHECK_TYPE(NotImplementedError, count <= INT_MAX, "backend 'mpi': ", call.text(), ": ", count,
                     " elements, but MPI counts to ", INT_MAX, " only: split the tensor");
  return static_cast<int>(count);
}

// Counts and places of parts that lie one after the other, in bytes.
struct Layout {
  std::vector<int> counts, places;
  Layout(Parts parts, const Call& call) {
    std::int64_t at = 0;
    for (const Span& part : parts) {
      counts.push_back(int_count(static_cast<std::int64_t>(part.bytes()), call));
      places.push_back(int_count(at, call));
      at += static_cast<std::int64_t>(part.bytes());
    }
  }
};

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(const BackendOptions& options) : Backend(options.rank, options.size) {
    warn_of_secret("mpi", options);
    // All members come here at one time, so that nobody waits for the turn of one who waits for him.
    const auto turn = Library::get().enter();
    int world_size = 0, world_rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    std::vector<int> members = options.global_ranks;
    if (members.empty())
      for (int r = 0; r < size(); ++r) members.push_back(r);
    for (const int member : members)
      ATHANOR_CHECK_TYPE(DistError, member < world_size, "backend 'mpi': rank ", member, " is wanted, but MPI has ",
                         world_size, " processes. Start the program with mpirun -n ", size());
    ATHANOR_CHECK_TYPE(DistError, members[static_cast<std::size_t>(rank())] == world_rank,
                       "backend 'mpi': this process is rank ", world_rank, " of MPI, not ",
                       members[static_cast<std::size_t>(rank())]);
    MPI_Group world = MPI_GROUP_NULL, own = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, size(), members.data(), &own), "MPI_Group_incl");
    const int code = MPI_Comm_create_group(
        MPI_COMM_WORLD, own, static_cast<int>(std::hash<std::string>()(options.group_name) % 30000), &communicator_);
    MPI_Group_free(&own);
    MPI_Group_free(&world);
    check(code, "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  }
  ~MpiBackend() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0 || Library::broken || aborted_) return;
    const auto turn = Library::get().enter();
    MPI_Comm_free(&communicator_);
  }

  std::string name() const override { return "mpi"; }
  bool supports(const ReduceOp& op, DType dtype) const override {
    return op == ReduceOp::USER || Backend::supports(op, dtype);
  }

  void barrier(const Call& call) override {
    run(call, [&](MPI_Request* request) { return MPI_Ibarrier(communicator_, request); });
  }

  void broadcast(const Call& call, Span data, int root) override {
    const int count = int_count(data.count, call);
    run(call, [&](MPI_Request* request) {
      return MPI_Ibcast(data.data, count, mpi_type(data.dtype), root, communicator_, request);
    });
  }

  void all_reduce(const Call& call, Span data, const ReduceOp& op) override {
    const Prepared prepared(data, op, false);
    sum_up(call, prepared.values(), op);
    prepared.finish(data, size());
  }

  void reduce(const Call& call, Span data, const ReduceOp& op, int root) override {
    const Prepared prepared(data, op, true);
    const Span& values = prepared.values();
    const Operator operation(op, values.dtype);
    const int count = int_count(values.count, call);
    run(call, [&](MPI_Request* request) {
      return rank() == root ? MPI_Ireduce(MPI_IN_PLACE, values.data, count, mpi_type(values.dtype), operation.get(),
                                          root, communicator_, request)
                            : MPI_Ireduce(values.data, nullptr, count, mpi_type(values.dtype), operation.get(), root,
                                          communicator_, request);
    });
    operation.check_thrown();
    if (rank() == root) prepared.finish(data, size());
  }

  void all_gather(const Call& call, Parts out, Span in) override {
    Joined all(out, false);
    const Layout layout(out, call);
    // A copy, in case the input lies in the output.
    Joined own(Parts(&in, 1), true);
    run(call, [&](MPI_Request* request) {
      return MPI_Iallgatherv(own.data(), int_count(static_cast<std::int64_t>(in.bytes()), call), MPI_BYTE, all.data(),
                             layout.counts.data(), layout.places.data(), MPI_BYTE, communicator_, request);
    });
    all.take_apart();
  }

  void gather(const Call& call, Parts out, Span in, int root) override {
    const Parts parts = rank() == root ? out : Parts();
    Joined all(parts, false);
    const Layout layout(parts, call);
    run(call, [&](MPI_Request* request) {
      return MPI_Igatherv(in.data, int_count(static_cast<std::int64_t>(in.bytes()), call), MPI_BYTE, all.data(),
                          layout.counts.data(), layout.places.data(), MPI_BYTE, root, communicator_, request);
    });
    all.take_apart();
  }

  void scatter(const Call& call, Span out, Parts in, int root) override {
    const Parts parts = rank() == root ? in : Parts();
    Joined all(parts, true);
    const Layout layout(parts, call);
    run(call, [&](MPI_Request* request) {
      return MPI_Iscatterv(all.data(), layout.counts.data(), layout.places.data(), MPI_BYTE, out.data,
                           int_count(static_cast<std::int64_t>(out.bytes()), call), MPI_BYTE, root, communicator_,
                           request);
    });
  }

  void reduce_scatter(const Call& call, Span out, Parts in, const ReduceOp& op) override {
    Joined all(in, true);
    Span everything{all.data(), 0, out.dtype};
    std::vector<int> counts;
    for (const Span& part : in) {
      everything.count += part.count;
      counts.push_back(int_count(part.count, call));
    }
    const Prepared prepared(everything, op, false);
    const Span& values = prepared.values();
    const Operator operation(op, values.dtype);
    std::vector<char> mine(static_cast<std::size_t>(out.count) * item_size(values.dtype));
    run(call, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter(values.data, mine.data(), counts.data(), mpi_type(values.dtype), operation.get(),
                                 communicator_, request);
    });
    operation.check_thrown();
    // The values are in their wide form still: what is left is what finish does to a whole result.
    prepared.finish_part({mine.data(), out.count, values.dtype}, out, size());
  }

  void all_to_all(const Call& call, Parts out, Parts in) override {
    Joined to(in, true), from(out, false);
    const Layout sends(in, call), receives(out, call);
    run(call, [&](MPI_Request* request) {
      return MPI_Ialltoallv(to.data(), sends.counts.data(), sends.places.data(), MPI_BYTE, from.data(),
                            receives.counts.data(), receives.places.data(), MPI_BYTE, communicator_, request);
    });
    from.take_apart();
  }

  std::unique_ptr<P2pRequest> isend(const Call& call, Span data, int to, std::uint32_t tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto turn = Library::get().enter();
    check(MPI_Isend(data.data, int_count(static_cast<std::int64_t>(data.bytes()), call), MPI_BYTE, to,
                    static_cast<int>(tag), communicator_, &request),
          "MPI_Isend");
    return std::make_unique<MpiRequest>(request, call, aborted_);
  }

  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const int bytes = int_count(static_cast<std::int64_t>(data.bytes()), call);
    const auto turn = Library::get().enter();
    check(MPI_Irecv(data.data, bytes, MPI_BYTE, from == kAnySource ? MPI_ANY_SOURCE : from, static_cast<int>(tag),
                    communicator_, &request),
          "MPI_Irecv");
    return std::make_unique<MpiRequest>(request, call, aborted_, bytes);
  }

  void progress(milliseconds patience) override {
    {
      const auto turn = Library::get().enter();
      int there = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &there, MPI_STATUS_IGNORE);
    }
    std::this_thread::sleep_for(std::min(patience, milliseconds(1)));
  }

  void abort(const std::string&) noexcept override {
    Library::broken = true;
    aborted_ = true;
  }

 private:
  void sum_up(const Call& call, const Span& values, const ReduceOp& op) {
    const Operator operation(op, values.dtype);
    const int count = int_count(values.count, call);
    run(call, [&](MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, values.data, count, mpi_type(values.dtype), operation.get(), communicator_,
                            request);
    });
    operation.check_thrown();
  }

  template <class Start>
  void run(const Call& call, Start&& start) {
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const auto turn = Library::get().enter();
      check(start(&request), op_name(call.op));
    }
    finish(request, MPI_STATUS_IGNORE, call.deadline,
           {call.background ? Wait::Background : Wait::Collective, call.text(), call.watch, aborted_});
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::atomic<bool> aborted_{false};
};

}  // namespace
}  // namespace athanor::distributed::plugins

extern "C" __attribute__((visibility("default"))) const char* athanor_plugin_note();
const char* athanor_plugin_note() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000)
  if (MPIX_Query_cuda_support() == 1) return "CUDA-aware: it takes device memory, which this backend does not hand it";
  return "not CUDA-aware: device tensors are staged through host memory";
#else
  return "does not say whether it is CUDA-aware: device tensors are staged through host memory";
#endif
}

ATHANOR_BACKEND_PLUGIN(register_backend("mpi", [](const BackendOptions& options) {
                         return std::unique_ptr<Backend>(new athanor::distributed::plugins::MpiBackend(options));
                       });)
