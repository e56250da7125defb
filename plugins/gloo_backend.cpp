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
#include <condition_variable>
#include <mutex>
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
  std::string host = addresses.empty() ? "127.0.0.1:0" : addresses[0].address.text();
  host.resize(host.rfind(':'));
  if (!host.empty() && host[0] == '[') host = host.substr(1, host.size() - 2);
  attributes.hostname = host;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

milliseconds left_of(const Call& call) { return std::max(call.deadline.remaining(), milliseconds(1)); }

// Goes before the values of a message: Gloo's own thread ends the process when more comes than there is room for.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint32_t dtype = 0, number = 0;  // which of the sender's messages, where the values follow
};

// What a message is and between whom.
struct Message {
  bool sends;
  Span data;
  int peer;
  std::uint32_t tag, number;
  std::string what;
  milliseconds timeout;
  GroupWatch* watch;
};

// Gloo waits in the thread that asks and gives up only by closing everything, so that a request has a thread.
class GlooRequest final : public P2pRequest {
 public:
  // Throws what Gloo throws.
  GlooRequest(std::shared_ptr<::gloo::Context> context, Message message)
      : context_(std::move(context)),
        message_(std::move(message)),
        first_(context_->createUnboundBuffer(&announced_, sizeof announced_)) {
    const auto slot = ::gloo::Slot::build(kAnnouncements, message_.tag);
    if (message_.sends) {
      announced_ = {message_.data.bytes(), static_cast<std::uint32_t>(message_.data.dtype), message_.number};
      first_->send(message_.peer, slot);
      post(message_.data.data, message_.data.bytes(), message_.peer);
    } else if (message_.peer == kAnySource) {
      std::vector<int> others;
      for (int r = 0; r < context_->size; ++r)
        if (r != context_->rank) others.push_back(r);
      first_->recv(others, slot);
    } else {
      first_->recv(message_.peer, slot);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~GlooRequest() override {
    {
      const std::lock_guard lock(mutex_);
      given_up_ = true;
      for (const auto& buffer : {first_.get(), values_.get()})
        if (!done_ && buffer != nullptr) message_.sends ? buffer->abortWaitSend() : buffer->abortWaitRecv();
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
      if (message_.watch != nullptr) message_.watch->look();
      lock.lock();
    }
    if (!done())
      throw DistBackendError(
          str(message_.what, ": ", message_.sends ? "it was not received" : "no such message came", " in time"),
          ATHANOR_WHERE);
    lock.unlock();
    test();
  }
  int source_rank() const override { return source_; }

 private:
  static constexpr std::uint8_t kAnnouncements = 0x40, kValues = 0x41;

  // The values, if there are any, under a number of their own: messages of one tag must not take each other's.
  void post(void* data, std::size_t bytes, int peer) {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    if (given_up_) return;
    values_ = context_->createUnboundBuffer(data, bytes);
    const auto slot = ::gloo::Slot::build(kValues, announced_.number);
    message_.sends ? values_->send(peer, slot) : values_->recv(peer, slot);
  }
  bool wait_for(::gloo::transport::UnboundBuffer* buffer, int* source) const {
    if (buffer == nullptr) return true;
    return message_.sends ? buffer->waitSend(message_.timeout) : buffer->waitRecv(source, message_.timeout);
  }
  // Empty if it came whole.
  std::string move() {
    if (!wait_for(first_.get(), &source_)) return message_.what + ": given up";
    if (message_.sends) return wait_for(values_.get(), nullptr) ? "" : message_.what + ": given up";
    const Span& wanted = message_.data;
    const auto dtype = static_cast<DType>(announced_.dtype);
    if (announced_.bytes == wanted.bytes() && dtype == wanted.dtype) {
      post(wanted.data, wanted.bytes(), source_);
      return wait_for(values_.get(), nullptr) ? "" : message_.what + ": given up";
    }
    const std::string error =
        str(message_.what, ": rank ", source_, " sent ", announced_.bytes / item_size(dtype), " × ", dtype,
            ", expected ", wanted.count, " × ", wanted.dtype, ". Both sides must agree");
    std::vector<char> nowhere(announced_.bytes);  // or its sender would wait for ever
    post(nowhere.data(), nowhere.size(), source_);
    wait_for(values_.get(), nullptr);
    return error;
  }
  // Gloo only tells of connections that ended.
  std::string why() const {
    const Deadline patience = Deadline::after(milliseconds(500));
    try {
      while (message_.watch != nullptr && !given_up_ && !patience.expired()) {
        message_.watch->look();
        std::this_thread::sleep_for(milliseconds(5));
      }
    } catch (const std::exception& reason) {
      return str(": ", reason.what());
    }
    return {};
  }
  void run() {
    std::string error;
    try {
      error = move();
    } catch (const std::exception& failure) {
      error = str(message_.what, ": ", failure.what(), why());
    }
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_ = true;
    ended_.notify_all();
  }

  std::shared_ptr<::gloo::Context> context_;
  const Message message_;
  Announcement announced_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> first_, values_;
  std::string error_;
  int source_ = -1;
  std::atomic<bool> done_{false}, given_up_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread thread_;
};

class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(const BackendOptions& options) : Backend(options.rank, options.size) {
    warn_of_secret("gloo", options);
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
    return message(call, {true, data, to, tag, ++sent_, call.text(), left_of(call), call.watch});
  }

  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag) override {
    return message(call, {false, data, from, tag, 0, call.text(), left_of(call), call.watch});
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
  static std::uint32_t tag(const Call& call) { return static_cast<std::uint32_t>(call.sequence); }

  std::unique_ptr<P2pRequest> message(const Call& call, Message message) {
    std::unique_ptr<P2pRequest> request;
    run(call, [&] { request = std::make_unique<GlooRequest>(context_, std::move(message)); });
    return request;
  }

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
  std::atomic<std::uint32_t> sent_{0};
};

}  // namespace
}  // namespace athanor::distributed::plugins

ATHANOR_BACKEND_PLUGIN(register_backend("gloo", [](const BackendOptions& options) {
                         return std::unique_ptr<Backend>(new athanor::distributed::plugins::GlooBackend(options));
                       });)
