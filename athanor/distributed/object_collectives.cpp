#include "athanor/distributed/object_collectives.h"

#include "athanor/distributed/error.h"
#include "athanor/ops/factory.h"
#include "athanor/tape/grad_mode.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// A length from another rank is checked before memory is asked for.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

Tensor as_tensor(const std::string& bytes) {
  Tensor t = empty({static_cast<std::int64_t>(bytes.size())}, kByte);
  if (!bytes.empty()) std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
  return t;
}

std::string as_bytes(const Tensor& t) {
  return std::string(static_cast<const char*>(t.data_ptr()), static_cast<std::size_t>(t.numel()));
}

std::int64_t checked(std::int64_t length) {
  if (length < 0 || length > kMostBytes)
    throw DistError(str("an object of ", length, " bytes was announced: do all ranks make the same call?"),
                    ATHANOR_WHERE);
  return length;
}

Tensor number(std::int64_t value) { return full({1}, Scalar(value), TensorOptions(kLong)); }

std::vector<Tensor> places_for(const Tensor& lengths) {
  std::vector<Tensor> places;
  for (std::int64_t r = 0; r < lengths.numel(); ++r)
    places.push_back(empty({checked(lengths.data_ptr<std::int64_t>()[r])}, kByte));
  return places;
}

std::vector<std::string> as_bytes(const std::vector<Tensor>& tensors) {
  std::vector<std::string> all;
  for (const Tensor& t : tensors) all.push_back(as_bytes(t));
  return all;
}

}  // namespace

std::string_view ObjectReader::take(std::size_t n) {
  if (n > bytes_.size())
    throw DistError(str("an object's bytes end ", n - bytes_.size(), " too early: do all ranks use the same type?"),
                    ATHANOR_WHERE);
  const std::string_view part = bytes_.substr(0, n);
  bytes_.remove_prefix(n);
  return part;
}

void ObjectCodec<Tensor>::write(std::string& out, const Tensor& value) {
  ATHANOR_CHECK(value.defined(), "ObjectCodec: the tensor is undefined");
  const NoGradGuard no_grad;
  const Tensor plain = value.detach().to(TensorOptions(Device())).contiguous();
  ObjectCodec<DType>::write(out, plain.dtype());
  ObjectCodec<std::vector<std::int64_t>>::write(out, plain.sizes().vec());
  out.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
}

Tensor ObjectCodec<Tensor>::read(ObjectReader& in) {
  const auto dtype = static_cast<int>(ObjectCodec<DType>::read(in));
  if (dtype < 0 || dtype >= kNumDTypes) throw DistError(str("a tensor of the unknown dtype ", dtype), ATHANOR_WHERE);
  const auto sizes = ObjectCodec<std::vector<std::int64_t>>::read(in);
  const auto type = static_cast<DType>(dtype);
  const auto bytes = static_cast<std::size_t>(checked_numel(sizes, "ObjectCodec")) * item_size(type);
  const std::string_view values = in.take(bytes);  // before memory is asked for
  Tensor t = empty(sizes, TensorOptions(type));
  if (bytes > 0) std::memcpy(t.data_ptr(), values.data(), bytes);
  return t;
}

int internals::global_rank_in(const ProcessGroupPtr& group) { return get_global_rank(group, get_rank(group)); }

std::vector<std::string> internals::all_gather_bytes(const std::string& own, const ProcessGroupPtr& group,
                                                     Where where) {
  const Tensor lengths = empty({get_world_size(group)}, kLong);
  all_gather_into_tensor(lengths, number(static_cast<std::int64_t>(own.size())), group, false, where);
  const auto places = places_for(lengths);
  all_gather(places, as_tensor(own), group, false, where);
  return as_bytes(places);
}

std::vector<std::string> internals::gather_bytes(const std::string& own, int dst, const ProcessGroupPtr& group,
                                                 Where where) {
  const bool root = global_rank_in(group) == dst;
  const int size = get_world_size(group);
  // Parts of a gather are alike: all bring as much as the longest.
  Tensor lengths = empty({size}, kLong);
  all_gather_into_tensor(lengths, number(static_cast<std::int64_t>(own.size())), group, false, where);
  std::int64_t most = 0;
  for (int r = 0; r < size; ++r) most = std::max(most, checked(lengths.data_ptr<std::int64_t>()[r]));
  std::string padded = own;
  padded.resize(static_cast<std::size_t>(most));
  std::vector<Tensor> places;
  for (int r = 0; root && r < size; ++r) places.push_back(empty({most}, kByte));
  gather(as_tensor(padded), places, dst, group, false, where);
  std::vector<std::string> all = as_bytes(places);
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r].resize(static_cast<std::size_t>(lengths.data_ptr<std::int64_t>()[r]));
  return all;
}

std::string internals::broadcast_bytes(const std::string& own, int src, const ProcessGroupPtr& group, Where where) {
  const Tensor length = number(static_cast<std::int64_t>(own.size()));
  broadcast(length, src, group, false, where);
  const Tensor bytes =
      global_rank_in(group) == src ? as_tensor(own) : Tensor(empty({checked(length.item<std::int64_t>())}, kByte));
  broadcast(bytes, src, group, false, where);
  return as_bytes(bytes);
}

std::string internals::scatter_bytes(const std::vector<std::string>& parts, int src, const ProcessGroupPtr& group,
                                     Where where) {
  const int size = get_world_size(group);
  const bool root = global_rank_in(group) == src;
  ATHANOR_CHECK_VALUE(parts.size() == (root ? static_cast<std::size_t>(size) : 0), "scatter_object_list: rank ",
                      global_rank_in(group), " gave ", parts.size(), " objects, expected ", root ? size : 0,
                      root ? "" : ": only the source has a list");
  Tensor lengths = zeros({size}, kLong);
  std::int64_t most = 0;
  for (std::size_t r = 0; r < parts.size(); ++r)
    lengths.data_ptr<std::int64_t>()[r] = static_cast<std::int64_t>(parts[r].size());
  broadcast(lengths, src, group, false, where);
  for (int r = 0; r < size; ++r) most = std::max(most, checked(lengths.data_ptr<std::int64_t>()[r]));
  std::vector<Tensor> padded;
  for (std::string part : parts) {
    part.resize(static_cast<std::size_t>(most));
    padded.push_back(as_tensor(part));
  }
  const Tensor own = empty({most}, kByte);
  scatter(own, padded, src, group, false, where);
  std::string bytes = as_bytes(own);
  bytes.resize(static_cast<std::size_t>(lengths.data_ptr<std::int64_t>()[get_rank(group)]));
  return bytes;
}

void internals::send_bytes(const std::string& bytes, int dst, const ProcessGroupPtr& group, int tag, Where where) {
  send(number(static_cast<std::int64_t>(bytes.size())), dst, group, tag, where);
  send(as_tensor(bytes), dst, group, tag, where);
}

std::string internals::recv_bytes(int& src, const ProcessGroupPtr& group, int tag, Where where) {
  const Tensor length = number(0);
  src = recv(length, src, group, tag, where);
  const Tensor bytes = empty({checked(length.item<std::int64_t>())}, kByte);
  recv(bytes, src, group, tag, where);
  return as_bytes(bytes);
}

}  // namespace athanor::distributed
