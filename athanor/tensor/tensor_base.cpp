#include "athanor/tensor/tensor_base.h"

#include <numeric>

#include "athanor/tensor/use_watch.h"

namespace athanor {

namespace detail {
void destroy_autograd_meta(AutogradMeta* meta);  // defined by the tape

IntrusivePtr<TensorImpl> new_tensor_impl() { return IntrusivePtr<TensorImpl>::first(new TensorImpl); }
}  // namespace detail

TensorImpl::~TensorImpl() {
  if (dims != inline_dims) delete[] dims;
  if (autograd) detail::destroy_autograd_meta(autograd);
  if (identity && identity_release) identity_release(identity);
}

void TensorImpl::destroy(TensorImpl* impl) { delete impl; }

std::int64_t checked_numel(IntArrayRef sizes, const char* op) {
  std::int64_t n = 1;
  for (const std::int64_t s : sizes) {
    ATHANOR_CHECK(s >= 0, op, ": trying to create a tensor with negative dimension ", s, ": ", sizes);
    ATHANOR_CHECK(!__builtin_mul_overflow(n, s, &n) && n <= (std::int64_t{1} << 58), op,
                  ": number of elements overflows: ", sizes);
  }
  return n;
}

void TensorImpl::set_contiguous(IntArrayRef sizes) {
  const auto n = static_cast<int>(sizes.size());
  ATHANOR_CHECK(n <= 64, "tensors have at most 64 dimensions, got ", n);
  if (n > kInlineDims) dims = new std::int64_t[2 * static_cast<std::size_t>(n)];
  ndim = static_cast<std::int8_t>(n);
  std::uint64_t step = 1;  // wraps for sizes that are refused below, and beside a size of 0
  for (int d = n - 1; d >= 0; --d) {
    dims[d] = sizes[static_cast<std::size_t>(d)];
    dims[n + d] = static_cast<std::int64_t>(step);
    step *= dims[d] > 1 ? static_cast<std::uint64_t>(dims[d]) : 1;
  }
  numel = checked_numel(sizes, "tensor");
  contiguous = true;
}

namespace {

bool is_row_major(IntArrayRef sizes, const std::int64_t* strides) {
  std::uint64_t expected = 1;  // wraps as in set_contiguous
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 0) return true;
    if (sizes[d] == 1) continue;
    if (strides[d] != static_cast<std::int64_t>(expected)) return false;
    expected *= static_cast<std::uint64_t>(sizes[d]);
  }
  return true;
}

}  // namespace

void TensorImpl::set_geometry(IntArrayRef sizes, IntArrayRef strides) {
  set_contiguous(sizes);
  if (strides.size() != sizes.size() || sizes.empty()) return;
  std::copy(strides.begin(), strides.end(), dims + ndim);
  contiguous = is_row_major(sizes, dims + ndim);
  for (const std::int64_t s : sizes)
    if (s == 0) contiguous = true;
}

void TensorBase::fail_undefined() {
  ATHANOR_THROW(Error, "a tensor that is not defined was used where its value or shape is needed");
}

std::int64_t TensorBase::size(std::int64_t d) const {
  const TensorImpl& i = checked();
  ATHANOR_CHECK_INDEX(i.ndim > 0, "size: Dimension specified as ", d, " but tensor has no dimensions");
  return i.dims[wrap_dim(d, i.ndim, "size")];
}

std::int64_t TensorBase::stride(std::int64_t d) const {
  const TensorImpl& i = checked();
  ATHANOR_CHECK_INDEX(i.ndim > 0, "stride: Dimension specified as ", d, " but tensor has no dimensions");
  return i.dims[i.ndim + wrap_dim(d, i.ndim, "stride")];
}

bool TensorBase::is_contiguous(MemoryFormat format) const {
  const TensorImpl& i = checked();
  if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve) return i.contiguous;
  if (i.ndim != (format == MemoryFormat::ChannelsLast ? 4 : 5)) return false;
  std::int64_t expected = 1;
  for (int step = 0; step < i.ndim; ++step) {
    const int d = step == 0 ? 1 : step == i.ndim - 1 ? 0 : i.ndim - step;
    if (i.dims[d] != 1 && i.dims[i.ndim + d] != expected) return false;
    expected *= i.dims[d];
  }
  return true;
}

bool TensorBase::is_non_overlapping_and_dense() const {
  const TensorImpl& i = checked();
  if (i.contiguous) return true;
  SmallVector<int, 8> order(static_cast<std::size_t>(i.ndim));
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t* strides = i.dims + i.ndim;
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return strides[a] != strides[b] ? strides[a] < strides[b] : i.dims[a] < i.dims[b]; });
  std::int64_t expected = 1;
  for (const int d : order) {
    if (i.dims[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= i.dims[d];
  }
  return true;
}

void* TensorBase::data_ptr() const {
  const TensorImpl& i = checked();
  if (__builtin_expect(!i.storage->host_exposed() && !i.device.is_host(), 0)) i.storage->expose_to_host();
  i.storage->note_address();
  if (i.numel == 0) return nullptr;
  return static_cast<char*>(i.storage->data()) + i.storage_offset * static_cast<std::int64_t>(item_size(i.dtype));
}

void TensorBase::check_element_type(DType wanted) const {
  ATHANOR_CHECK(wanted == dtype(), "expected scalar type ", dtype_libtorch_name(wanted), " but found ",
                dtype_libtorch_name(dtype()));
}

Scalar TensorBase::item() const {
  const TensorImpl& i = checked();
  ATHANOR_CHECK(i.numel == 1, "a Tensor with ", i.numel,
                " elements cannot be converted to Scalar; index it down to one element first");
  detail::note_use("item", *this);
  i.storage->wait_for_values();
  const void* p =
      static_cast<char*>(i.storage->data()) + i.storage_offset * static_cast<std::int64_t>(item_size(i.dtype));
  return dispatch_all(i.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return Scalar(*static_cast<const T*>(p));
  });
}

std::int64_t wrap_dim(std::int64_t dim, std::int64_t ndim, const char* op) {
  const std::int64_t n = ndim > 0 ? ndim : 1;
  if (__builtin_expect(dim < -n || dim >= n, 0))
    ATHANOR_THROW(IndexError, op, ": Dimension out of range (expected to be in range of [", -n, ", ", n - 1,
                  "], but got ", dim, ")");
  return dim < 0 ? dim + n : dim;
}

DimVector infer_size(IntArrayRef shape, std::int64_t numel, const char* op) {
  DimVector out(shape);
  std::int64_t known = 1;
  int unknown = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      ATHANOR_CHECK(unknown < 0, op, ": only one dimension can be inferred, got shape ", shape);
      unknown = static_cast<int>(i);
    } else {
      ATHANOR_CHECK(shape[i] >= 0, op, ": invalid shape dimension ", shape[i], " in ", shape);
      ATHANOR_CHECK(!__builtin_mul_overflow(known, shape[i], &known), op, ": shape ", shape,
                    " is invalid for input of size ", numel);
    }
  }
  if (unknown >= 0) {
    ATHANOR_CHECK(known != 0, op, ": cannot reshape tensor of ", numel, " elements into shape ", shape,
                  " because the unspecified dimension size -1 can be any value and is ambiguous");
    if (numel % known == 0) {
      out[static_cast<std::size_t>(unknown)] = numel / known;
      known = numel;
    }
  }
  ATHANOR_CHECK(known == numel, op, ": shape ", shape, " is invalid for input of size ", numel);
  return out;
}

DimVector broadcast_shapes(IntArrayRef a, IntArrayRef b, const char* op) {
  const std::size_t n = std::max(a.size(), b.size());
  DimVector out(n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    ATHANOR_CHECK(x == y || x == 1 || y == 1, op, ": The size of tensor a (", x, ") must match the size of tensor b (",
                  y, ") at non-singleton dimension ", n - 1 - i, "; shapes ", a, " and ", b);
    out[n - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

namespace detail {

TensorBase empty_tensor(IntArrayRef sizes, DType dtype, Device device, IntArrayRef strides) {
  auto impl = new_tensor_impl();
  if (strides.empty())
    impl->set_contiguous(sizes);
  else
    impl->set_geometry(sizes, strides);
  impl->dtype = dtype;
  impl->device = device;
  std::size_t elements = static_cast<std::size_t>(impl->numel);
  if (!impl->contiguous && impl->numel) {
    elements = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      elements += static_cast<std::size_t>((sizes[d] - 1) * impl->dims[sizes.size() + d]);
  }
  impl->storage = Storage::allocate(device, elements * item_size(dtype));
  return TensorBase(std::move(impl));
}

TensorBase empty_hidden_tensor(IntArrayRef sizes, DType dtype, Device device, int block,
                               HiddenLayout::Restore restore) {
  auto impl = new_tensor_impl();
  impl->set_contiguous(sizes);
  impl->dtype = dtype;
  impl->device = device;
  const std::int64_t images = sizes[0] * sizes[1];
  const ChannelBlocks blocks{sizes[0], sizes[1], images ? impl->numel / images : 0, block,
                             static_cast<std::uint32_t>(item_size(dtype))};
  impl->storage = Storage::with_hidden(device, make_intrusive<HiddenLayout>(device, blocks, restore));
  return TensorBase(std::move(impl));
}

TensorBase alias(const TensorBase& base, IntArrayRef sizes, IntArrayRef strides, std::int64_t storage_offset) {
  auto impl = new_tensor_impl();
  impl->set_geometry(sizes, strides);
  impl->dtype = base.impl()->dtype;
  impl->device = base.impl()->device;
  impl->storage = base.impl()->storage;
  impl->storage_offset = storage_offset;
  impl->inference = base.impl()->inference;
  impl->own_version = base.impl()->own_version;
  return TensorBase(std::move(impl));
}

DimVector strides_for(IntArrayRef sizes, MemoryFormat format) {
  const int n = static_cast<int>(sizes.size());
  DimVector strides(sizes.size());
  const bool last = format == MemoryFormat::ChannelsLast || format == MemoryFormat::ChannelsLast3d;
  ATHANOR_CHECK(!last || n == (format == MemoryFormat::ChannelsLast ? 4 : 5),
                "memory_format channels_last needs a 4-d tensor and channels_last_3d a 5-d one, got shape ", sizes);
  std::int64_t step = 1;
  auto place = [&](int d) {
    strides[static_cast<std::size_t>(d)] = step;
    step *= std::max<std::int64_t>(sizes[static_cast<std::size_t>(d)], 1);
  };
  if (last) {
    place(1);
    for (int d = n - 1; d >= 2; --d) place(d);
    place(0);
  } else {
    for (int d = n - 1; d >= 0; --d) place(d);
  }
  return strides;
}

std::string describe(const TensorBase& t) {
  if (!t.defined()) return "an undefined tensor";
  std::string out = dtype_name(t.dtype());
  append_list(out, t.sizes().data(), t.sizes().size());
  if (!t.device().is_host()) out += " on " + t.device().str();
  return out;
}

}  // namespace detail
}  // namespace athanor
