#pragma once
/// A backend of one's own: StoreBackend moves everything through the group's key/value store. It is slow and easy to
/// follow, works wherever the ranks share a store (threads, processes, hosts), and shows what a backend has to do.

#include <athanor/athanor.h>
#include <athanor/distributed/backend.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>

namespace store_backend {

using namespace athanor::distributed;  // NOLINT(google-build-using-namespace): an example
using athanor::Deadline;
using athanor::DType;
using athanor::Tensor;
using athanor::detail::str;

inline Store::Value bytes_of(Span span) {
  const auto* data = static_cast<const std::uint8_t*>(span.data);
  return Store::Value(data, data + span.bytes());
}

inline void fill(Span span, const Store::Value& value, const std::string& what) {
  if (value.size() != span.bytes())
    throw DistError(str(what, ": got ", value.size(), " bytes, expected ", span.bytes()));
  if (!value.empty()) std::memcpy(span.data, value.data(), value.size());
}

/// A tensor that looks at the span's memory.
inline Tensor view_of(Span span) {
  return athanor::from_blob(span.data, {span.count}, athanor::TensorOptions(span.dtype));
}

/// The dtype in which values cross the store. Scaled half values stay in float32: they are to be rounded once, at the
/// end.
inline DType wire_dtype(DType dtype, const ReduceOp& op) {
  return op.kind() == ReduceOp::PREMUL_SUM && athanor::is_half(dtype) ? DType::Float : dtype;
}

/// Combines the ranks' values in the order of ranks, half types in float32 with one rounding at the end.
inline void combine(Span out, std::vector<Store::Value>& values, const ReduceOp& op) {
  const DType wire = wire_dtype(out.dtype, op);
  for (const Store::Value& value : values)
    if (value.size() != Span{nullptr, out.count, wire}.bytes())
      throw DistError(str("the ranks brought ", value.size(), " and ", Span{nullptr, out.count, wire}.bytes(),
                          " bytes, expected as many from each"));
  if (op.kind() == ReduceOp::USER) {
    std::copy(values[0].begin(), values[0].end(), static_cast<std::uint8_t*>(out.data));
    for (std::size_t r = 1; r < values.size(); ++r) op.function()(out.data, values[r].data(), out.count, out.dtype);
    return;
  }
  const bool half = athanor::is_half(out.dtype), boolean = out.dtype == DType::Bool;
  Tensor sum;
  for (Store::Value& value : values) {
    Tensor next = view_of({value.data(), out.count, wire});
    if (half) next = next.to(DType::Float);
    if (!sum.defined()) {
      sum = next.clone();
      continue;
    }
    switch (op.kind()) {
      case ReduceOp::PRODUCT:
        boolean ? sum.logical_and_(next) : sum.mul_(next);
        break;
      case ReduceOp::MIN:
        sum = athanor::minimum(sum, next);
        break;
      case ReduceOp::MAX:
        sum = athanor::maximum(sum, next);
        break;
      case ReduceOp::BAND:
        sum = sum.bitwise_and(next);
        break;
      case ReduceOp::BOR:
        sum = sum.bitwise_or(next);
        break;
      case ReduceOp::BXOR:
        sum = sum.bitwise_xor(next);
        break;
      default:
        boolean ? sum.logical_or_(next) : sum.add_(next);
        break;
    }
  }
  if (op.kind() == ReduceOp::AVG) sum.div_(static_cast<double>(values.size()));
  view_of(out).copy_(sum);
}

class StoreBackend : public Backend {
 public:
  explicit StoreBackend(const BackendOptions& options)
      : Backend(options.rank, options.size), store_(options.store), group_(options.group_name) {}
  std::string name() const override { return "store"; }
  bool supports(const ReduceOp& op, DType dtype) const override { return reduces(op.kind(), dtype); }

  void barrier(const Call& call) override {
    Span nothing;
    exchange(call, nothing);
  }
  void broadcast(const Call& call, Span data, int root) override {
    if (rank() == root) put(call, root, 0, data);
    if (rank() != root) fill(data, take(call, root, 0), call.text());
    finish(call);
  }
  void all_reduce(const Call& call, Span data, const ReduceOp& op) override {
    auto values = exchange(call, scaled(data, op));
    combine(data, values, op);
  }
  void reduce(const Call& call, Span data, const ReduceOp& op, int root) override {
    auto values = exchange(call, scaled(data, op));
    if (rank() == root) combine(data, values, op);
  }
  void all_gather(const Call& call, Parts out, Span in) override {
    const auto values = exchange(call, in);
    for (std::size_t r = 0; r < out.size(); ++r) fill(out[r], values[r], call.text());
  }
  void gather(const Call& call, Parts out, Span in, int root) override {
    const auto values = exchange(call, in);
    if (rank() != root) return;
    for (std::size_t r = 0; r < out.size(); ++r) fill(out[r], values[r], call.text());
  }
  void scatter(const Call& call, Span out, Parts in, int root) override {
    for (std::size_t r = 0; r < in.size() && rank() == root; ++r) put(call, root, static_cast<int>(r), in[r]);
    fill(out, take(call, root, rank()), call.text());
    finish(call);
  }
  void reduce_scatter(const Call& call, Span out, Parts in, const ReduceOp& op) override {
    for (std::size_t r = 0; r < in.size(); ++r) put(call, rank(), static_cast<int>(r), scaled(in[r], op));
    std::vector<Store::Value> values;
    for (int r = 0; r < size(); ++r) values.push_back(take(call, r, rank()));
    combine(out, values, op);
    finish(call);
  }
  void all_to_all(const Call& call, Parts out, Parts in) override {
    for (std::size_t r = 0; r < in.size(); ++r) put(call, rank(), static_cast<int>(r), in[r]);
    for (int r = 0; r < size(); ++r) fill(out[static_cast<std::size_t>(r)], take(call, r, rank()), call.text());
    finish(call);
  }

  // Each rank has a mailbox: letters numbered in the order they came.

  std::unique_ptr<P2pRequest> isend(const Call&, Span data, int to, std::uint32_t tag) override {
    Store::Value letter(8);
    const std::uint32_t head[2] = {static_cast<std::uint32_t>(rank()), tag};
    std::memcpy(letter.data(), head, sizeof head);
    const auto body = bytes_of(data);
    letter.insert(letter.end(), body.begin(), body.end());
    store_->set(str("mail/", to, "/", store_->add(str("mail/", to, "/last"), 1)), letter);
    return std::make_unique<Sent>();
  }
  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag) override {
    auto request = std::make_unique<Received>(*this, call.text(), data, from, tag);
    const std::lock_guard lock(mail_mutex_);
    expected_.push_back(request.get());
    return request;
  }
  void progress(std::chrono::milliseconds patience) override {
    const Deadline deadline = Deadline::after(patience);
    read_mail();
    while (!deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      read_mail();
    }
  }

  void abort(const std::string& reason) noexcept override {
    try {
      store_->set("aborted", reason.empty() ? "no reason given" : reason);
    } catch (const std::exception&) {  // the store is gone, and with it the others' waits
    }
  }

 private:
  class Sent final : public P2pRequest {
   public:
    bool test() override { return true; }
    void wait(Deadline) override {}
  };
  class Received final : public P2pRequest {
   public:
    Received(StoreBackend& backend, std::string text, Span data, int from, std::uint32_t tag)
        : data(data), from(from), tag(tag), backend_(backend), text_(std::move(text)) {}
    ~Received() override {
      const std::lock_guard lock(backend_.mail_mutex_);
      backend_.expected_.remove(this);
    }
    bool test() override {
      backend_.read_mail();
      if (!error.empty()) throw DistError(error);
      return source >= 0;
    }
    void wait(Deadline deadline) override {
      while (!test()) {
        if (deadline.expired())
          throw DistError(str("timed out: nothing came from ", from < 0 ? std::string("any rank") : str("rank ", from),
                              " with tag ", tag, " for ", text_));
        backend_.check_aborted();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    int source_rank() const override { return source; }

    Span data;
    int from;
    std::uint32_t tag;
    std::atomic<int> source = -1;
    std::string error;

   private:
    StoreBackend& backend_;
    std::string text_;
  };
  struct Letter {
    int from;
    std::uint32_t tag;
    Store::Value body;
  };

  void read_mail() {
    const std::lock_guard lock(mail_mutex_);
    const std::int64_t last = store_->add(str("mail/", rank(), "/last"), 0);
    while (read_ < last) {
      const std::string key = str("mail/", rank(), "/", ++read_);
      const Store::Value letter = store_->get(key);
      store_->delete_key(key);
      std::uint32_t head[2];
      std::memcpy(head, letter.data(), sizeof head);
      unread_.push_back({static_cast<int>(head[0]), head[1], Store::Value(letter.begin() + 8, letter.end())});
    }
    for (auto r = expected_.begin(); r != expected_.end();) r = hand_out(**r) ? expected_.erase(r) : std::next(r);
  }
  bool hand_out(Received& request) {
    for (auto letter = unread_.begin(); letter != unread_.end(); ++letter) {
      if (letter->tag != request.tag || (request.from >= 0 && letter->from != request.from)) continue;
      try {
        fill(request.data, letter->body, str("message from rank ", letter->from, ", tag ", letter->tag));
      } catch (const DistError& wrong) {
        request.error = wrong.what();
      }
      request.source = letter->from;
      unread_.erase(letter);
      return true;
    }
    return false;
  }

  // Everyone's own values, for everyone.
  std::vector<Store::Value> exchange(const Call& call, Span own) { return exchange(call, bytes_of(own)); }
  std::vector<Store::Value> exchange(const Call& call, const Store::Value& own) {
    put(call, rank(), 0, own);
    std::vector<Store::Value> values;
    for (int r = 0; r < size(); ++r) values.push_back(take(call, r, 0));
    finish(call);
    return values;
  }
  Store::Value scaled(Span span, const ReduceOp& op) {
    if (op.kind() != ReduceOp::PREMUL_SUM) return bytes_of(span);
    const DType wire = wire_dtype(span.dtype, op);
    Store::Value value(Span{nullptr, span.count, wire}.bytes());
    view_of({value.data(), span.count, wire}).copy_(view_of(span).to(wire).mul(op.factor()));
    return value;
  }

  std::string key(const Call& call, int from, int part) { return str(call.sequence, "/", from, "/", part); }
  void put(const Call& call, int from, int part, Span data) { put(call, from, part, bytes_of(data)); }
  void put(const Call& call, int from, int part, const Store::Value& data) {
    store_->set(key(call, from, part), data);
    written_[call.sequence].push_back(key(call, from, part));
  }
  Store::Value take(const Call& call, int from, int part) {
    const std::string wanted = key(call, from, part);
    while (true) {
      check_aborted();
      try {
        return store_->get(wanted, std::min(call.deadline.remaining(), std::chrono::milliseconds(50)));
      } catch (const DistStoreError&) {
        if (call.deadline.expired())
          throw DistError(
              str("timed out after ", call.timeout.count(), " ms waiting for rank ", from, " in ", call.text()));
      }
    }
  }
  void check_aborted() {
    if (store_->check({"aborted"})) throw DistError(str("the group was aborted: ", store_->get_text("aborted")));
  }
  // A key can go when all ranks have ended the call that wrote it.
  void finish(const Call& call) {
    store_->add(str(call.sequence, "/ended"), 1);
    while (!written_.empty() && store_->add(str(written_.begin()->first, "/ended"), 0) == size()) {
      for (const std::string& old : written_.begin()->second) store_->delete_key(old);
      written_.erase(written_.begin());
    }
  }

  std::shared_ptr<Store> store_;
  std::string group_;
  std::map<std::uint64_t, std::vector<std::string>> written_;
  std::mutex mail_mutex_;
  std::int64_t read_ = 0;
  std::list<Letter> unread_;
  std::list<Received*> expected_;
};

inline void register_once() {
  static const bool done = [] {
    register_backend("store", [](const BackendOptions& options) { return std::make_unique<StoreBackend>(options); });
    return true;
  }();
  (void)done;
}

}  // namespace store_backend
