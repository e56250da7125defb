// The backend "gloo": collectives of the Gloo library, over TCP.
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <thread>

#include "athanor/base/interrupt.h"
#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/plugin.h"
#include "plugins/prepared.h"

namespace athanor::distributed::plugins {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;
using Bytes = std::uint8_t;

// Our store, as Gloo wants to see it.
class GlooStore final : public ::gloo::rendezvous::Store {
 public:
  GlooStore(std::shared_ptr<distributed::Store> store, milliseconds timeout)
      : store_(std::move(store)), timeout_(timeout) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(key, distributed::Store::Value(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = store_->get(key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override { store_->wait(keys, timeout); }

 private:
  std::shared_ptr<distributed::Store> store_;
  milliseconds timeout_;
};

// A host that other ranks can connect to; a name that resolves to 127.0.1.1, as Gloo would find, is none.
std::shared_ptr<::gloo::transport::Device> make_device() {
  ::gloo::transport::tcp::attr attributes;
  const auto addresses = reachable_addresses(0);
  std::string host = addresses.empty() ? "127.0.0.1:0" : addresses[0].text();
  host.resize(host.rfind(':'));
  if (!host.empty() && host[0] == '[') host = host.substr(1, host.size() - 2);
  attributes.hostname = host;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

milliseconds left_of(const Call& call) { return std::max(call.deadline.remaining(), milliseconds(1)); }

// Gloo waits in the thread that asks and gives up only by closing everything, so that a request has a thread.
class GlooRequest final : public P2pRequest {
 public:
  GlooRequest(std::unique_ptr<::gloo::transport::UnboundBuffer> buffer, bool sends, std::string what,
              milliseconds timeout)
      : buffer_(std::move(buffer)), sends_(sends), what_(std::move(what)), thread_([this, timeout] { run(timeout); }) {}
  ~GlooRequest() override {
    if (!done_) {
      if (sends_)
        buffer_->abortWaitSend();
      else
        buffer_->abortWaitRecv();
    }
    thread_.join();
  }
  bool test() override {
    if (!done_) return false;
    if (!error_.empty()) throw DistBackendError(error_, ATHANOR_WHERE);
    return true;
  }
  void wait(Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const auto done = [this] { return done_.load(); };
    while (!ended_.wait_until(lock, deadline.sooner(Deadline::after(kInterruptPeriod)).at(), done) &&
           !deadline.expired()) {
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
    if (!done())
      throw DistBackendError(str(what_, ": ", sends_ ? "it was not received" : "no such message came", " in time"),
                             ATHANOR_WHERE);
    lock.unlock();
    test();
  }
  int source_rank() const override { return source_; }

 private:
  void run(milliseconds timeout) {
    try {
      const bool ended = sends_ ? buffer_->waitSend(timeout) : buffer_->waitRecv(&source_, timeout);
      if (!ended) error_ = what_ + ": given up";
    } catch (const std::exception& error) {
      error_ = str(what_, ": ", error.what());
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    ended_.notify_all();
  }

  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  bool sends_;
  std::string what_, error_;
  int source_ = -1;
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread thread_;
};

class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(const BackendOptions& options) : Backend(options.rank, options.size) {
    const auto store = std::make_shared<GlooStore>(options.store, options.timeout);
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank(), size());
    context->setTimeout(options.timeout);
    auto device = make_device();
    try {
      context->connectFullMesh(*store, device);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw DistBackendError(
          str("backend 'gloo': rank ", rank(), " of ", size(), " could not connect to the others: ", error.what()),
          ATHANOR_WHERE);
    }
    context_ = std::move(context);
  }

  std::string name() const override { return "gloo"; }
  bool supports(const ReduceOp& op, DType dtype) const override {
    return op == ReduceOp::USER || Backend::supports(op, dtype);
  }

  void barrier(const Call& call) override {
    run(call, [&] {
      ::gloo::BarrierOptions options(context_);
      options.setTag(tag(call));
      options.setTimeout(left_of(call));
      ::gloo::barrier(options);
    });
  }

  void broadcast(const Call& call, Span data, int root) override {
    if (data.count == 0) return;
    run(call, [&] {
      ::gloo::BroadcastOptions options(context_);
      options.setOutput(static_cast<Bytes*>(data.data), data.bytes());
      options.setRoot(root);
      options.setTag(tag(call));
      options.setTimeout(left_of(call));
      ::gloo::broadcast(options);
    });
  }

  void all_reduce(const Call& call, Span data, const ReduceOp& op) override {
    if (data.count == 0) return;
    run(call, [&] {
      const Prepared prepared(data, op, false);
      sum_up(call, prepared.values(), op);
      prepared.finish(data, size());
    });
  }

  // By an all_reduce: Gloo's own reduce takes the other ranks' memory as room to work in.
  void reduce(const Call& call, Span data, const ReduceOp& op, int root) override {
    if (data.count == 0) return;
    run(call, [&] {
      const Prepared prepared(data, op, true);
      sum_up(call, prepared.values(), op);
      if (rank() == root) prepared.finish(data, size());
    });
  }

  void all_gather(const Call& call, Parts out, Span in) override {
    run(call, [&] {
      Joined all(out, false);
      std::vector<std::size_t> counts;
      std::size_t total = 0;
      for (const Span& part : out) total += counts.emplace_back(part.bytes());
      if (total == 0) return;
      ::gloo::AllgathervOptions options(context_);
      options.setInput(static_cast<Bytes*>(in.data), in.bytes());
      options.setOutput(reinterpret_cast<Bytes*>(all.data()), counts);
      options.setTag(tag(call));
      options.setTimeout(left_of(call));
      ::gloo::allgatherv(options);
      all.take_apart();
    });
  }

  void gather(const Call& call, Parts out, Span in, int root) override {
    if (in.count == 0) return;
    run(call, [&] {
      Joined all(rank() == root ? out : Parts(), false);
      ::gloo::GatherOptions options(context_);
      options.setInput(static_cast<Bytes*>(in.data), in.bytes());
      if (rank() == root) options.setOutput(reinterpret_cast<Bytes*>(all.data()), in.bytes() * out.size());
      options.setRoot(root);
      options.setTag(tag(call));
      options.setTimeout(left_of(call));
      ::gloo::gather(options);
      all.take_apart();
    });
  }

  void scatter(const Call& call, Span out, Parts in, int root) override {
    if (out.count == 0) return;
    run(call, [&] {
      ::gloo::ScatterOptions options(context_);
      if (rank() == root) {
        std::vector<Bytes*> parts;
        for (const Span& part : in) parts.push_back(static_cast<Bytes*>(part.data));
        options.setInputs(parts, out.bytes());
      }
      options.setOutput(static_cast<Bytes*>(out.data), out.bytes());
      options.setRoot(root);
      options.setTag(tag(call));
      options.setTimeout(left_of(call));
      ::gloo::scatter(options);
    });
  }

  // By an all_reduce of all parts: this Gloo has no reduce_scatter for any number of ranks.
  void reduce_scatter(const Call& call, Span out, Parts in, const ReduceOp& op) override {
    run(call, [&] {
      Joined all(in, true);
      Span everything{all.data(), 0, out.dtype};
      std::int64_t before = 0;
      for (std::size_t r = 0; r < in.size(); ++r) {
        everything.count += in[r].count;
        if (static_cast<int>(r) < rank()) before += in[r].count;
      }
      if (everything.count == 0) return;
      const Prepared prepared(everything, op, false);
      sum_up(call, prepared.values(), op);
      prepared.finish(everything, size());
      cpu::copy_bytes(out.data, all.data() + static_cast<std::size_t>(before) * item_size(out.dtype), out.bytes());
    });
  }

  void all_to_all(const Call& call, Parts out, Parts in) override {
    run(call, [&] {
      Joined to(in, true), from(out, false);
      const auto counts = [](Parts parts) {
        std::vector<std::int64_t> all;
        for (const Span& part : parts) all.push_back(static_cast<std::int64_t>(part.bytes()));
        return all;
      };
      ::gloo::AlltoallvOptions options(context_);
      options.setInput(reinterpret_cast<Bytes*>(to.data()), counts(in));
      options.setOutput(reinterpret_cast<Bytes*>(from.data()), counts(out));
      options.setTag(tag(call));
      options.setTimeout(left_of(call));
      ::gloo::alltoallv(options);
      from.take_apart();
    });
  }

  std::unique_ptr<P2pRequest> isend(const Call& call, Span data, int to, std::uint32_t tag) override {
    auto buffer = context_->createUnboundBuffer(data.data, data.bytes());
    buffer->send(to, ::gloo::Slot::build(kMessages, tag));
    return std::make_unique<GlooRequest>(std::move(buffer), true, call.text(), left_of(call));
  }

  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag) override {
    auto buffer = context_->createUnboundBuffer(data.data, data.bytes());
    const auto slot = ::gloo::Slot::build(kMessages, tag);
    if (from == kAnySource) {
      std::vector<int> others;
      for (int r = 0; r < size(); ++r)
        if (r != rank()) others.push_back(r);
      buffer->recv(others, slot);
    } else {
      buffer->recv(from, slot);
    }
    return std::make_unique<GlooRequest>(std::move(buffer), false, call.text(), left_of(call));
  }

  // Gloo has a thread of its own.
  void progress(milliseconds patience) override { std::this_thread::sleep_for(std::min(patience, milliseconds(1))); }

  void abort(const std::string&) noexcept override {
    try {
      for (int r = 0; r < size(); ++r)
        if (r != rank())
          if (auto& pair = context_->getPair(r)) pair->close();
    } catch (const std::exception&) {  // closed already
    }
  }

 private:
  static constexpr std::uint8_t kMessages = 0x40;

  static std::uint32_t tag(const Call& call) { return static_cast<std::uint32_t>(call.sequence); }

  template <class T>
  void sum_up_as(const Call& call, const Span& values, const ReduceOp& op) {
    ::gloo::AllreduceOptions options(context_);
    options.setOutput(static_cast<T*>(values.data), static_cast<std::size_t>(values.count));
    options.setReduceFunction([&](void* out, const void* a, const void* b, std::size_t n) {
      const auto count = static_cast<std::int64_t>(n);
      if (op == ReduceOp::USER) {
        if (out != a) cpu::copy_bytes(out, a, n * sizeof(T));
        return op.function()(out, b, count, values.dtype);
      }
      const void* in[] = {a, b};
      cpu::combine(out, in, 2, count, values.dtype, combine_of(op.kind()));
    });
    options.setTag(tag(call));
    options.setTimeout(left_of(call));
    ::gloo::allreduce(options);
  }

  void sum_up(const Call& call, const Span& values, const ReduceOp& op) {
    switch (item_size(values.dtype)) {
      case 1:
        return sum_up_as<std::uint8_t>(call, values, op);
      case 2:
        return sum_up_as<std::uint16_t>(call, values, op);
      case 4:
        return sum_up_as<std::uint32_t>(call, values, op);
      default:
        return sum_up_as<std::uint64_t>(call, values, op);
    }
  }

  template <class Body>
  void run(const Call& call, Body&& body) {
    try {
      body();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw DistBackendError(str("backend 'gloo': ", call.text(), ": ", error.what()), ATHANOR_WHERE);
    }
  }

  std::shared_ptr<::gloo::Context> context_;
};

}  // namespace
}  // namespace athanor::distributed::plugins

ATHANOR_BACKEND_PLUGIN(register_backend("gloo", [](const BackendOptions& options) {
                         return std::unique_ptr<Backend>(new athanor::distributed::plugins::GlooBackend(options));
                       });)
