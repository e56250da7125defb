#pragma once
/// libtorch's C++ names for what is distributed: c10d::ProcessGroupGloo, AllreduceOptions, Work, TCPStore … Programs
/// written against <torch/csrc/distributed/c10d/*.hpp> compile with them as they are. Each is a thin layer over the
/// library's own, which collectives.h and process_group.h have; new programs use those.
///
/// As with libtorch's backends for the CPU, a list of tensors has one tensor. All calls are asynchronous. Other than
/// there, a timeout in a call's options holds for Work::wait(), not for the call as such, which ends by the group's.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/base/intrusive_ptr.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/store.h"

namespace athanor::c10d {

using distributed::ReduceOp;

constexpr std::chrono::milliseconds kUnsetTimeout{-1};
constexpr std::chrono::milliseconds kNoTimeout{0};
constexpr std::chrono::milliseconds kBackendDefaultTimeout = distributed::kDefaultTimeout;

struct BroadcastOptions {
  std::int64_t rootRank = 0, rootTensor = 0;
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct AllreduceOptions {
  ReduceOp reduceOp = ReduceOp::SUM;
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct AllreduceCoalescedOptions : AllreduceOptions {};
struct ReduceOptions {
  ReduceOp reduceOp = ReduceOp::SUM;
  std::int64_t rootRank = 0, rootTensor = 0;
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct AllgatherOptions {
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct GatherOptions {
  std::int64_t rootRank = 0;
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct ScatterOptions {
  std::int64_t rootRank = 0;
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct ReduceScatterOptions {
  ReduceOp reduceOp = ReduceOp::SUM;
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct AllToAllOptions {
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};
struct BarrierOptions {
  std::vector<std::int64_t> device_ids;  ///< ignored: a barrier here needs no device
  std::chrono::milliseconds timeout = kUnsetTimeout;
  bool asyncOp = true;
};

/// A distributed::Store under libtorch's names.
class Store : public RefCounted {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout = distributed::kStoreTimeout;

  explicit Store(std::shared_ptr<distributed::Store> store) : store_(std::move(store)) {}
  virtual ~Store() = default;
  void set(const std::string& key, const std::string& value) { store_->set(key, std::string_view(value)); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) { store_->set(key, value); }
  std::vector<std::uint8_t> get(const std::string& key) { return store_->get(key); }
  std::string get_to_str(const std::string& key) { return store_->get_text(key); }
  std::int64_t add(const std::string& key, std::int64_t amount) { return store_->add(key, amount); }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) {
    return store_->compare_set(key, expected, desired);
  }
  bool deleteKey(const std::string& key) { return store_->delete_key(key); }
  bool check(const std::vector<std::string>& keys) { return store_->check(keys); }
  std::int64_t getNumKeys() { return store_->num_keys(); }
  void wait(const std::vector<std::string>& keys) { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
    store_->wait(keys, timeout);
  }
  std::chrono::milliseconds getTimeout() const { return store_->timeout(); }
  void setTimeout(const std::chrono::milliseconds& timeout) { store_->set_timeout(timeout); }
  const std::shared_ptr<distributed::Store>& store() const { return store_; }

 private:
  std::shared_ptr<distributed::Store> store_;
};
struct TCPStoreOptions {
  std::uint16_t port = 29500;
  bool isServer = false;
  std::optional<std::size_t> numWorkers;
  bool waitWorkers = true;
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
  bool multiTenant = false;
  std::optional<int> masterListenFd;
  bool useLibUV = true;  ///< without effect: there is one implementation
};
class TCPStore : public Store {
 public:
  explicit TCPStore(const std::string& host, const TCPStoreOptions& options = {});
  const std::string& getHost() const;
  std::uint16_t getPort() const;
};
class FileStore : public Store {
 public:
  /// The last process to close it removes the file, however many there are.
  explicit FileStore(const std::string& path, int numWorkers = -1);
};
class HashStore : public Store {
 public:
  HashStore();
};
class PrefixStore : public Store {
 public:
  PrefixStore(const std::string& prefix, const IntrusivePtr<Store>& store);
};

/// Of a call under way.
class Work : public RefCounted {
 public:
  Work(distributed::WorkPtr work, std::chrono::milliseconds timeout) : work_(std::move(work)), timeout_(timeout) {}
  bool isCompleted() { return work_->is_completed(); }
  bool isSuccess() const { return work_->is_success(); }
  std::exception_ptr exception() const { return work_->exception(); }
  int sourceRank() const { return work_->source_rank(); }
  std::vector<Tensor> result() { return work_->result(); }
  /// Throws what the call failed with.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) {
    return work_->wait(timeout > kNoTimeout ? timeout : timeout_ > kNoTimeout ? timeout_ : kUnsetTimeout);
  }
  void synchronize() { wait(); }

 private:
  distributed::WorkPtr work_;
  std::chrono::milliseconds timeout_;
};

/// libtorch's ProcessGroup and Backend in one.
class ProcessGroup : public RefCounted {
 public:
  using Where = distributed::ProcessGroup::Where;

  explicit ProcessGroup(distributed::ProcessGroupPtr group) : group_(std::move(group)) {}
  virtual ~ProcessGroup() = default;
  int getRank() const { return group_->rank(); }
  int getSize() const { return group_->size(); }
  virtual const std::string getBackendName() const { return group_->backend_name(); }  // NOLINT: libtorch's signature
  const distributed::ProcessGroupPtr& group() const { return group_; }

  IntrusivePtr<Work> broadcast(std::vector<Tensor>& tensors, const BroadcastOptions& options = {},
                               Where where = Where::current());
  IntrusivePtr<Work> allreduce(std::vector<Tensor>& tensors, const AllreduceOptions& options = {},
                               Where where = Where::current());
  IntrusivePtr<Work> reduce(std::vector<Tensor>& tensors, const ReduceOptions& options = {},
                            Where where = Where::current());
  IntrusivePtr<Work> allgather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                               const AllgatherOptions& options = {}, Where where = Where::current());
  IntrusivePtr<Work> _allgather_base(Tensor& output, Tensor& input, const AllgatherOptions& options = {},
                                     Where where = Where::current());
  IntrusivePtr<Work> gather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                            const GatherOptions& options = {}, Where where = Where::current());
  IntrusivePtr<Work> scatter(std::vector<Tensor>& outputs, std::vector<std::vector<Tensor>>& inputs,
                             const ScatterOptions& options = {}, Where where = Where::current());
  IntrusivePtr<Work> reduce_scatter(std::vector<Tensor>& outputs, std::vector<std::vector<Tensor>>& inputs,
                                    const ReduceScatterOptions& options = {}, Where where = Where::current());
  IntrusivePtr<Work> _reduce_scatter_base(Tensor& output, Tensor& input, const ReduceScatterOptions& options = {},
                                          Where where = Where::current());
  IntrusivePtr<Work> alltoall(std::vector<Tensor>& outputs, std::vector<Tensor>& inputs,
                              const AllToAllOptions& options = {}, Where where = Where::current());
  IntrusivePtr<Work> alltoall_base(Tensor& output, Tensor& input, std::vector<std::int64_t>& outputSplitSizes,
                                   std::vector<std::int64_t>& inputSplitSizes, const AllToAllOptions& options = {},
                                   Where where = Where::current());
  IntrusivePtr<Work> barrier(const BarrierOptions& options = {}, Where where = Where::current());
  IntrusivePtr<Work> send(std::vector<Tensor>& tensors, int dstRank, int tag, Where where = Where::current());
  IntrusivePtr<Work> recv(std::vector<Tensor>& tensors, int srcRank, int tag, Where where = Where::current());
  IntrusivePtr<Work> recvAnysource(std::vector<Tensor>& tensors, int tag, Where where = Where::current());
  /// Ends every wait of the group on all ranks.
  void abort() { group_->abort("c10d::ProcessGroup::abort() was called"); }

 private:
  distributed::ProcessGroupPtr group_;
};
using Backend = ProcessGroup;

/// The library's own backend, which does what Gloo does in libtorch: processes of one or several hosts, tensors on the
/// CPU. It finds the network by itself (ATHANOR_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), so devices need not be given.
class ProcessGroupGloo : public ProcessGroup {
 public:
  struct Device {};
  struct Options : RefCounted {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : timeout(timeout) {}
    static IntrusivePtr<Options> create(std::chrono::milliseconds timeout = kBackendDefaultTimeout) {
      return make_intrusive<Options>(timeout);
    }
    static IntrusivePtr<Options> create_default(std::chrono::milliseconds timeout = kBackendDefaultTimeout) {
      return create(timeout);
    }
    std::chrono::milliseconds timeout;
    std::string group_name;
    std::vector<std::shared_ptr<Device>> devices;
    int threads = 2;
  };
  ProcessGroupGloo(const IntrusivePtr<Store>& store, int rank, int size,
                   const IntrusivePtr<Options>& options = Options::create());
  static std::shared_ptr<Device> createDefaultDevice() { return std::make_shared<Device>(); }
  static std::shared_ptr<Device> createDeviceForInterface(const std::string&) { return createDefaultDevice(); }
  static std::shared_ptr<Device> createDeviceForHostname(const std::string&) { return createDefaultDevice(); }
};

/// The world of an MPI launcher, by the plug-in on the MPI library.
class ProcessGroupMPI : public ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;
  /// Throws NotImplementedError for less than all ranks; distributed::new_group makes such groups.
  static IntrusivePtr<ProcessGroupMPI> createProcessGroupMPI(const std::vector<int>& ranks = {});
};

}  // namespace athanor::c10d

namespace c10d = athanor::c10d;
