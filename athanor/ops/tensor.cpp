// Methods of class Tensor that are not ops: indexing by brackets, printing.
#include "athanor/ops/tensor.h"

#include <iostream>

#include "athanor/ops/all_ops.h"
#include "athanor/ops/op.h"
#include "athanor/tensor/print.h"

namespace athanor {
namespace {

/// What is left of x[…] after integers, slices and None were applied: a view, and index tensors for some of its dims.
struct Indexed {
  TensorBase view;
  std::vector<TensorBase> tensors;
  bool advanced = false;
  void put(std::int64_t dim, TensorBase index) {
    if (static_cast<std::size_t>(dim) >= tensors.size()) tensors.resize(static_cast<std::size_t>(dim) + 1);
    tensors[static_cast<std::size_t>(dim)] = std::move(index);
    advanced = true;
  }
};

bool is_mask(const TensorBase& t) { return t.dtype() == kBool || t.dtype() == kByte; }

/// An integer in a tensor is an integer: what it selects is a view.
bool is_number(const TensorBase& t) { return t.defined() && t.dim() == 0 && is_integral(t.dtype()) && !is_mask(t); }

std::int64_t consumed_dims(ArrayRef<indexing::TensorIndex> indices) {
  using Kind = indexing::TensorIndex::Kind;
  std::int64_t n = 0;
  for (const auto& i : indices) {
    if (i.kind() == Kind::Integer || i.kind() == Kind::Slice) ++n;
    if (i.kind() == Kind::Tensor) n += is_mask(i.tensor()) ? i.tensor().dim() : 1;
  }
  return n;
}

/// A mask stands for the coordinates of its true elements, one index tensor per dim of the mask.
void put_mask(Indexed& out, std::int64_t& dim, const TensorBase& mask) {
  for (std::int64_t d = 0; d < mask.dim(); ++d)
    ATHANOR_CHECK_INDEX(mask.size(d) == out.view.size(dim + d), "The shape of the mask ", mask.sizes(), " at index ", d,
                        " does not match the shape of the indexed tensor ", out.view.sizes(), " at index ", dim + d);
  if (mask.dim() == 0) out.view = ops::unsqueeze(out.view, dim);
  for (const TensorBase& t : ops::nonzero_numpy(mask)) out.put(dim++, t);
}

/// `place` is the dim of the tensor that brackets were written behind, which an error names.
TensorBase select_at(const TensorBase& view, std::int64_t dim, std::int64_t place, std::int64_t index) {
  const std::int64_t size = view.size(dim);
  ATHANOR_CHECK_INDEX(index >= -size && index < size, "index ", index, " is out of bounds for dimension ", place,
                      " with size ", size);
  return ops::select(view, dim, index);
}

/// The index on self's device: one on the host is brought there.
TensorBase beside(const TensorBase& self, const TensorBase& index) {
  if (index.device() == self.device()) return index;
  ATHANOR_CHECK(index.device().is_host(),
                "indices should be either on cpu or on the same device as the indexed tensor (", self.device(),
                "), got one on ", index.device());
  return Tensor(index).to(self.device());
}

Indexed apply(const TensorBase& self, ArrayRef<indexing::TensorIndex> indices) {
  using Kind = indexing::TensorIndex::Kind;
  const std::int64_t used = consumed_dims(indices);
  ATHANOR_CHECK_INDEX(used == 0 || self.dim() > 0, "invalid index of a 0-dim tensor; x.item<T>() gives its number");
  ATHANOR_CHECK_INDEX(used <= self.dim(), "too many indices for tensor of dimension ", self.dim(), ": got ", used);
  Indexed out{self, {}};
  std::int64_t dim = 0, place = 0;
  bool ellipsis = false;
  for (const auto& i : indices) {
    switch (i.kind()) {
      case Kind::Integer:
        out.view = select_at(out.view, dim, place++, i.integer());
        break;
      case Kind::Slice:
        ++place;
        if (const auto& s = i.slice(); s.start() != 0 || s.stop() < out.view.size(dim) || s.step() != 1)
          out.view = ops::slice(out.view, dim, s.start(), s.stop(), s.step());
        ++dim;
        break;
      case Kind::None:
        out.view = ops::unsqueeze(out.view, dim++);
        break;
      case Kind::Ellipsis:
        ATHANOR_CHECK_INDEX(!ellipsis, "an index can only have a single ellipsis ('...')");
        ellipsis = true;
        dim += self.dim() - used;
        place += self.dim() - used;
        break;
      case Kind::Boolean:
        put_mask(out, dim, ops::full({}, Scalar(i.boolean()), TensorOptions(kBool).device(self.device())));
        break;
      case Kind::Tensor: {
        const TensorBase& t = i.tensor();
        if (is_number(t)) {
          out.view = select_at(out.view, dim, place++, t.item().toLong());
          break;
        }
        ATHANOR_CHECK_INDEX(t.defined() && (is_mask(t) || t.dtype() == kLong || t.dtype() == kInt),
                            "tensors used as indices must be long, int, byte or bool tensors, got ",
                            t.defined() ? detail::str(t.dtype(), " of shape ", t.sizes()) : "an undefined one");
        place += is_mask(t) ? t.dim() : 1;
        const TensorBase here = beside(self, t);
        if (is_mask(t))
          put_mask(out, dim, here);
        else
          out.put(dim++, ops::to_dtype(here, kLong));
        break;
      }
    }
  }
  return out;
}

/// Whether a mask is all that chooses elements one by one.
bool is_one_mask(ArrayRef<indexing::TensorIndex> indices) {
  std::size_t masks = 0;
  for (const indexing::TensorIndex& i : indices) {
    const bool is_tensor = i.kind() == indexing::TensorIndex::Kind::Tensor && !is_number(i.tensor());
    if (is_tensor && !is_mask(i.tensor())) return false;
    masks += is_tensor || i.kind() == indexing::TensorIndex::Kind::Boolean;
  }
  return masks == 1;
}

void assign(const TensorBase& self, ArrayRef<indexing::TensorIndex> indices, const TensorBase& value, bool accumulate) {
  ATHANOR_CHECK_VALUE(
      !indices.empty(),
      "Passing an empty index list to Tensor::index_put_() is not valid syntax; use x.copy_ or x.fill_");
  const Indexed at = apply(self, indices);
  // As in PyTorch: converted where memory is copied or filled; what is put at places has to have their dtype.
  const bool converted = !at.advanced || (value.numel() == 1 && is_one_mask(indices));
  TensorBase v = value.dtype() == self.dtype() || !converted ? value : ops::to_dtype(value, self.dtype());
  if (v.dim() == 0 && v.device().is_host() && v.device() != self.device()) v = Tensor(v).to(self.device());
  while (v.dim() > 0 && v.size(0) == 1) v = ops::squeeze(v, 0);  // as NumPy: leading ones do not count
  if (at.advanced) {
    ops::index_put_with_(at.view, at.tensors, v, accumulate);
    return;
  }
  if (accumulate)
    ops::add_(at.view, v);
  else if (v.impl()->wrapped_number && ops::is_expanded(at.view))
    ops::fill_(at.view, v.item());
  else
    ops::copy_(at.view, v);
}

}  // namespace

Tensor Tensor::index(ArrayRef<indexing::TensorIndex> indices) const {
  ATHANOR_CHECK_VALUE(!indices.empty(), "Passing an empty index list to Tensor::index() is not valid syntax");
  const Indexed at = apply(*this, indices);
  if (at.advanced) return ops::index_with(at.view, at.tensors);
  if (!at.view.is_same(*this)) return at.view;
  return dim() == 0 ? view(IntArrayRef{}) : ops::slice(*this, 0);
}
Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(ArrayRef<indexing::TensorIndex>(indices.begin(), indices.size()));
}
Tensor& Tensor::index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value, bool accumulate) const {
  assign(*this, indices, value, accumulate);
  return const_cast<Tensor&>(*this);
}
Tensor& Tensor::index_put_(ArrayRef<indexing::TensorIndex> indices, const Scalar& value, bool accumulate) const {
  const Tensor number = ops::full({}, value, options());
  number.impl()->wrapped_number = true;
  return index_put_(indices, number, accumulate);
}
Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value,
                           bool accumulate) const {
  return index_put_(ArrayRef<indexing::TensorIndex>(indices.begin(), indices.size()), value, accumulate);
}
Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value,
                           bool accumulate) const {
  return index_put_(ArrayRef<indexing::TensorIndex>(indices.begin(), indices.size()), value, accumulate);
}
Tensor Tensor::index_put(ArrayRef<indexing::TensorIndex> indices, const Tensor& value, bool accumulate) const {
  return clone().index_put_(indices, value, accumulate);
}
Tensor Tensor::index_put(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value,
                         bool accumulate) const {
  return index_put(ArrayRef<indexing::TensorIndex>(indices.begin(), indices.size()), value, accumulate);
}

std::string Tensor::toString() const {
  if (!defined()) return "UndefinedType";
  return std::string(is_cuda() ? "CUDA" : "CPU") + dtype_libtorch_name(dtype()) + "Type";
}

std::string Tensor::str() const {
  if (!defined()) return "[ Tensor (undefined) ]";
  const Tensor host = detach().to(TensorOptions(Device()));
  return format_tensor_cpp(detail::view_of(host), is_cuda() ? "CUDA" : "CPU");
}

void Tensor::print() const { std::cout << "[" << toString() << " " << detail::str(sizes()) << "]\n"; }

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.str(); }

namespace indexing {

std::ostream& operator<<(std::ostream& out, const Slice& slice) {
  return out << slice.start() << ":" << slice.stop() << ":" << slice.step();
}

std::ostream& operator<<(std::ostream& out, const TensorIndex& index) {
  using Kind = TensorIndex::Kind;
  switch (index.kind()) {
    case Kind::None:
      return out << "None";
    case Kind::Ellipsis:
      return out << "...";
    case Kind::Integer:
      return out << index.integer();
    case Kind::Boolean:
      return out << (index.boolean() ? "true" : "false");
    case Kind::Slice:
      return out << index.slice();
    case Kind::Tensor:
      break;
  }
  return out << Tensor(index.tensor());
}

std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& indices) {
  out << "(";
  for (std::size_t i = 0; i < indices.size(); ++i) out << (i ? ", " : "") << indices[i];
  return out << ")";
}

}  // namespace indexing

}  // namespace athanor
