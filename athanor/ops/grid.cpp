// Grids and combinations of vectors.
#include "athanor/ops/grid.h"

#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/join.h"
#include "athanor/ops/op.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

/// Result k repeats the vector k along the dims of all the others: coordinates of a grid, without copies. 0-d tensors
/// count as vectors of one element.
ATHANOR_FUNCTION("meshgrid(Tensor[] tensors) -> Tensor[]");
std::vector<Tensor> meshgrid(TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "meshgrid expects a non-empty TensorList");
  DimVector shape;
  for (const Tensor& t : tensors) {
    ATHANOR_CHECK(t.dim() <= 1, "meshgrid: Expected 0D or 1D tensor in the tensor list but got shape ", t.sizes());
    ATHANOR_CHECK(t.dtype() == tensors[0].dtype(), "meshgrid expects all tensors to have the same dtype, got ",
                  tensors[0].dtype(), " and ", t.dtype());
    ATHANOR_CHECK(t.device() == tensors[0].device(), "meshgrid expects all tensors to have the same device, got ",
                  tensors[0].device(), " and ", t.device());
    shape.push_back(t.numel());
  }
  std::vector<Tensor> out;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    DimVector column(shape.size(), 1);
    column[k] = shape[k];
    out.push_back(expand(view(reshape(tensors[k], {-1}), column), shape));
  }
  return out;
}

/// indexing "ij" as above; "xy" exchanges the first two dims of the results.
ATHANOR_FUNCTION("meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]");
std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing) {
  ATHANOR_CHECK(indexing == "ij" || indexing == "xy",
                "meshgrid: indexing must be one of \"xy\" or \"ij\", but received: ", indexing);
  std::vector<Tensor> out = meshgrid(tensors);
  if (indexing == "xy" && out.size() >= 2) {
    std::vector<Tensor> swapped(tensors.begin(), tensors.end());
    std::swap(swapped[0], swapped[1]);
    out = meshgrid(swapped);
    std::swap(out[0], out[1]);
  }
  return out;
}

namespace {

void check_vector(const char* op, const Tensor& t) {
  ATHANOR_CHECK(t.dim() == 1, op, ": Expect a 1D vector, but got shape ", t.sizes());
}

}  // namespace

/// All tuples with an element of each vector, one a row, the last vector running fastest.
ATHANOR_FUNCTION("cartesian_prod(Tensor[] tensors) -> Tensor");
Tensor cartesian_prod(TensorList tensors) {
  for (const Tensor& t : tensors) check_vector("cartesian_prod", t);
  if (tensors.size() == 1) return tensors[0];
  std::vector<Tensor> columns;
  for (const Tensor& t : meshgrid(tensors)) columns.push_back(reshape(t, {t.numel()}));
  return stack(columns, 1);
}

/// All choices of r elements of a vector, in order, one a row; with_replacement: elements may repeat.
ATHANOR_FUNCTION("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor | function");
Tensor combinations(const Tensor& self, std::int64_t r, bool with_replacement) {
  check_vector("combinations", self);
  ATHANOR_CHECK(r >= 0, "combinations: Expect a non-negative number, but got ", r);
  ATHANOR_CHECK(r <= 64, "combinations: at most 64 elements can be chosen, got r = ", r);
  if (r == 0) return empty({0}, self.options());
  const Tensor numbers = arange(self.numel(), TensorOptions(self.device()));
  const std::vector<Tensor> places = meshgrid(std::vector<Tensor>(static_cast<std::size_t>(r), numbers));
  Tensor chosen = full(places[0].sizes(), Scalar(true), TensorOptions(kBool).device(self.device()));
  for (std::size_t k = 1; k < places.size(); ++k)
    chosen = logical_and(chosen, with_replacement ? le(places[k - 1], places[k]) : lt(places[k - 1], places[k]));
  std::vector<Tensor> columns;
  for (const Tensor& t : places) columns.push_back(index_select(self, 0, masked_select(t, chosen)));
  return stack(columns, 1);
}

}  // namespace athanor::ops

#include "athanor/ops/grid.glue.inc"
