#include "athanor/distributed/c10d.h"

#include "athanor/distributed/groups.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::c10d {

namespace {

template <class T>
T& only(const char* op, std::vector<T>& list) {
  ATHANOR_CHECK_VALUE(list.size() == 1, "c10d ", op, ": got a list of ", list.size(),
                      ", expected a list of one, as libtorch's backends for the CPU take");
  return list[0];
}

IntrusivePtr<Work> handle(distributed::WorkPtr work, std::chrono::milliseconds timeout) {
  return make_intrusive<Work>(std::move(work), timeout);
}

std::shared_ptr<distributed::Store> tcp_store(const std::string& host, const TCPStoreOptions& options) {
  distributed::TCPStoreOptions own;
  own.port = options.port;
  own.is_server = options.isServer;
  if (options.numWorkers) own.num_workers = static_cast<int>(*options.numWorkers);
  own.wait_workers = options.waitWorkers;
  own.timeout = options.timeout;
  own.multi_tenant = options.multiTenant;
  own.master_listen_fd = options.masterListenFd;
  return std::make_shared<distributed::TCPStore>(host, own);
}

}  // namespace

TCPStore::TCPStore(const std::string& host, const TCPStoreOptions& options) : Store(tcp_store(host, options)) {}
const std::string& TCPStore::getHost() const { return static_cast<const distributed::TCPStore&>(*store()).host(); }
std::uint16_t TCPStore::getPort() const {
  return static_cast<std::uint16_t>(static_cast<const distributed::TCPStore&>(*store()).port());
}
FileStore::FileStore(const std::string& path, int) : Store(std::make_shared<distributed::FileStore>(path)) {}
HashStore::HashStore() : Store(std::make_shared<distributed::HashStore>()) {}
PrefixStore::PrefixStore(const std::string& prefix, const IntrusivePtr<Store>& store)
    : Store(std::make_shared<distributed::PrefixStore>(prefix, store->store())) {}

IntrusivePtr<Work> ProcessGroup::broadcast(std::vector<Tensor>& tensors, const BroadcastOptions& o, Where where) {
  return handle(group_->broadcast(only("broadcast", tensors), static_cast<int>(o.rootRank), true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::allreduce(std::vector<Tensor>& tensors, const AllreduceOptions& o, Where where) {
  return handle(group_->all_reduce(only("allreduce", tensors), o.reduceOp, true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::reduce(std::vector<Tensor>& tensors, const ReduceOptions& o, Where where) {
  return handle(group_->reduce(only("reduce", tensors), static_cast<int>(o.rootRank), o.reduceOp, true, where),
                o.timeout);
}

IntrusivePtr<Work> ProcessGroup::allgather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                                           const AllgatherOptions& o, Where where) {
  return handle(group_->all_gather(only("allgather", outputs), only("allgather", inputs), true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::_allgather_base(Tensor& output, Tensor& input, const AllgatherOptions& o,
                                                 Where where) {
  return handle(group_->all_gather_into_tensor(output, input, true, where), o.timeout);
}

// Who is not the root gives no output.
IntrusivePtr<Work> ProcessGroup::gather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                                        const GatherOptions& o, Where where) {
  const auto root = static_cast<int>(o.rootRank);
  std::vector<Tensor> none;
  std::vector<Tensor>& to = root == getRank() ? only("gather", outputs) : none;
  return handle(group_->gather(to, only("gather", inputs), root, true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::scatter(std::vector<Tensor>& outputs, std::vector<std::vector<Tensor>>& inputs,
                                         const ScatterOptions& o, Where where) {
  const auto root = static_cast<int>(o.rootRank);
  std::vector<Tensor> none;
  std::vector<Tensor>& from = root == getRank() ? only("scatter", inputs) : none;
  return handle(group_->scatter(only("scatter", outputs), from, root, true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::reduce_scatter(std::vector<Tensor>& outputs, std::vector<std::vector<Tensor>>& inputs,
                                                const ReduceScatterOptions& o, Where where) {
  return handle(
      group_->reduce_scatter(only("reduce_scatter", outputs), only("reduce_scatter", inputs), o.reduceOp, true, where),
      o.timeout);
}

IntrusivePtr<Work> ProcessGroup::_reduce_scatter_base(Tensor& output, Tensor& input, const ReduceScatterOptions& o,
                                                      Where where) {
  return handle(group_->reduce_scatter_tensor(output, input, o.reduceOp, true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::alltoall(std::vector<Tensor>& outputs, std::vector<Tensor>& inputs,
                                          const AllToAllOptions& o, Where where) {
  return handle(group_->all_to_all(outputs, inputs, true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::alltoall_base(Tensor& output, Tensor& input,
                                               std::vector<std::int64_t>& outputSplitSizes,
                                               std::vector<std::int64_t>& inputSplitSizes, const AllToAllOptions& o,
                                               Where where) {
  return handle(group_->all_to_all_single(output, input, outputSplitSizes, inputSplitSizes, true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::barrier(const BarrierOptions& o, Where where) {
  return handle(group_->barrier(true, where), o.timeout);
}

IntrusivePtr<Work> ProcessGroup::send(std::vector<Tensor>& tensors, int dstRank, int tag, Where where) {
  return handle(group_->isend(only("send", tensors), dstRank, tag, where), kUnsetTimeout);
}

IntrusivePtr<Work> ProcessGroup::recv(std::vector<Tensor>& tensors, int srcRank, int tag, Where where) {
  return handle(group_->irecv(only("recv", tensors), srcRank, tag, where), kUnsetTimeout);
}

IntrusivePtr<Work> ProcessGroup::recvAnysource(std::vector<Tensor>& tensors, int tag, Where where) {
  return handle(group_->irecv(only("recvAnysource", tensors), distributed::kAnySourceRank, tag, where), kUnsetTimeout);
}

namespace {
distributed::ProcessGroupPtr native_group(const IntrusivePtr<Store>& store, int rank, int size,
                                          const ProcessGroupGloo::Options& given) {
  distributed::ProcessGroupOptions options;
  options.rank = rank;
  options.size = size;
  options.name = given.group_name.empty() ? "c10d" : given.group_name;
  options.timeout = given.timeout;
  return std::make_shared<distributed::ProcessGroup>(store->store(), options);
}
}  // namespace

ProcessGroupGloo::ProcessGroupGloo(const IntrusivePtr<Store>& store, int rank, int size,
                                   const IntrusivePtr<Options>& options)
    : ProcessGroup(native_group(store, rank, size, *options)) {}

IntrusivePtr<ProcessGroupMPI> ProcessGroupMPI::createProcessGroupMPI(const std::vector<int>& ranks) {
  if (!distributed::is_initialized()) distributed::init_process_group("mpi");
  distributed::ProcessGroupPtr world = distributed::default_group();
  ATHANOR_CHECK_TYPE(NotImplementedError, ranks.empty() || static_cast<int>(ranks.size()) == world->size(),
                     "createProcessGroupMPI: got ", ranks.size(), " of ", world->size(),
                     " ranks; distributed::new_group makes a group of some");
  return make_intrusive<ProcessGroupMPI>(std::move(world));
}

}  // namespace athanor::c10d
