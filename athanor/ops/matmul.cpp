// Products of vectors, matrices and batches of matrices.
#include "athanor/ops/matmul.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/direct_gradient.h"
#include "athanor/ops/hidden.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/scaled.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

void check_operands(const char* op, std::initializer_list<const Tensor*> operands) {
  const Tensor& first = **operands.begin();
  for (const Tensor* t : operands) {
    ATHANOR_CHECK(t->defined(), op, ": expected a tensor, got an undefined one");
    ATHANOR_CHECK(t->dtype() == first.dtype(), op,
                  ": expected m1 and m2 to have the same dtype, but got: ", first.dtype(), " != ", t->dtype(),
                  "; convert one with .to(dtype)");
    ATHANOR_CHECK_TYPE(NotImplementedError, t->dtype() != DType::Bool, op, ": not implemented for 'Bool'");
  }
}

/// `t` as the kernel is to read it while it writes `out`: a copy if they share memory.
Tensor apart(const Tensor& t, const Tensor& out) {
  if (!t.defined() || t.storage().get() != out.storage().get()) return t;
  return clone(t);
}

/// `t` read with the given shape, size-1 and leading dims repeated; outside autograd, for kernels.
Tensor broadcast_alias(const Tensor& t, IntArrayRef sizes) {
  DimVector strides(sizes.size());
  const std::size_t lead = sizes.size() - t.sizes().size();
  for (std::size_t d = lead; d < sizes.size(); ++d)
    strides[d] = t.sizes()[d - lead] == 1 && sizes[d] != 1 ? 0 : t.strides()[d - lead];
  return detail::alias(t, sizes, strides, t.storage_offset());
}

/// A vector as a matrix of one column (or row).
Tensor column_alias(const Tensor& v) { return detail::alias(v, {v.size(0), 1}, {v.stride(0), 1}, v.storage_offset()); }
Tensor row_alias(const Tensor& v) { return detail::alias(v, {1, v.size(0)}, {1, v.stride(0)}, v.storage_offset()); }

void check_bias(const char* op, const Tensor& bias, IntArrayRef sizes) {
  bool fits = bias.dim() <= static_cast<std::int64_t>(sizes.size());
  for (std::size_t i = 0; fits && i < bias.sizes().size(); ++i) {
    const std::int64_t have = bias.sizes()[bias.sizes().size() - 1 - i], want = sizes[sizes.size() - 1 - i];
    fits = have == want || have == 1;
  }
  ATHANOR_CHECK(fits, op, ": input of shape ", bias.sizes(), " cannot be expanded to the result's shape ", sizes);
}

/// PyTorch's layout of a product's gradients: that of the operand, so that a weight passed transposed gets a plain one.
bool is_column_major(IntArrayRef sizes, IntArrayRef strides) {
  return strides[0] == 1 && strides[1] == sizes[0] && sizes[0] != 1 && sizes[1] != 1;
}
Tensor product_in_layout(const Tensor& a, const Tensor& b, bool column_major) {
  return column_major ? t(mm(t(b), t(a))) : mm(a, b);
}

}  // namespace

/// Product of two matrices.
struct Mm : Autocast<AutocastTo::Lower> {
  ATHANOR_OP("mm(Tensor self, Tensor mat2) -> Tensor | out");
  SavedTensor a, b;
  bool a_columns = false, b_columns = false;
  Meta infer(const Tensor& self, const Tensor& mat2) {
    check_operands("mm", {&self, &mat2});
    ATHANOR_CHECK(self.dim() == 2, "mm: self must be a matrix, got ", self.dim(), "-D tensor of shape ", self.sizes());
    ATHANOR_CHECK(mat2.dim() == 2, "mm: mat2 must be a matrix, got ", mat2.dim(), "-D tensor of shape ", mat2.sizes());
    ATHANOR_CHECK(self.size(1) == mat2.size(0), "mm: mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x",
                  self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
    return {{self.size(0), mat2.size(1)}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& mat2) {
    launch(gemm_kernel, out, apart(self, out), apart(mat2, out), Tensor(), Scalar(1), Scalar(0));
  }
  void save(const Node& n, const Tensor& self, const Tensor& mat2) {
    a_columns = is_column_major(self.sizes(), self.strides());
    b_columns = is_column_major(mat2.sizes(), mat2.strides());
    if (n.needs(1)) a.save(self);
    if (n.needs(0)) b.save(mat2);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, product_in_layout(g.grad(), t(g.get(b)), a_columns));
    if (g.needs(1)) g.set(1, product_in_layout(t(g.get(a)), g.grad(), b_columns));
  }
};

/// beta * self + alpha * (mat1 @ mat2); self broadcasts. beta == 0 ignores self, NaN in it included.
struct Addmm : Autocast<AutocastTo::Lower> {
  ATHANOR_OP("addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor | inplace out");
  Scalar beta, alpha;
  SavedTensor a, b;
  bool a_columns = false, b_columns = false;
  Meta infer(const Tensor& self, const Tensor& mat1, const Tensor& mat2) {
    check_operands("addmm", {&self, &mat1, &mat2});
    ATHANOR_CHECK(mat1.dim() == 2 && mat2.dim() == 2, "addmm: mat1 and mat2 must be matrices, got ", mat1.dim(),
                  "-D and ", mat2.dim(), "-D tensors");
    ATHANOR_CHECK(mat1.size(1) == mat2.size(0), "addmm: mat1 and mat2 shapes cannot be multiplied (", mat1.size(0), "x",
                  mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
    const DimVector sizes{mat1.size(0), mat2.size(1)};
    check_bias("addmm", self, sizes);
    return {sizes, mat1.dtype(), mat1.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& mat1, const Tensor& mat2) {
    launch(gemm_kernel, out, apart(mat1, out), apart(mat2, out), broadcast_alias(self, out.sizes()), alpha, beta);
  }
  void save(const Node& n, const Tensor&, const Tensor& mat1, const Tensor& mat2) {
    a_columns = is_column_major(mat1.sizes(), mat1.strides());
    b_columns = is_column_major(mat2.sizes(), mat2.strides());
    if (n.needs(2)) a.save(mat1);
    if (n.needs(1)) b.save(mat2);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, scaled(g.grad(), beta));
    if (g.needs(1)) g.set(1, scaled(product_in_layout(g.grad(), t(g.get(b)), a_columns), alpha));
    if (g.needs(2)) g.set(2, scaled(product_in_layout(t(g.get(a)), g.grad(), b_columns), alpha));
  }
};

/// Products of the matrices of two batches.
struct Bmm : Autocast<AutocastTo::Lower> {
  ATHANOR_OP("bmm(Tensor self, Tensor mat2) -> Tensor | out");
  SavedTensor a, b;
  static void check(const char* op, const Tensor& self, const Tensor& mat2) {
    check_operands(op, {&self, &mat2});
    ATHANOR_CHECK(self.dim() == 3 && mat2.dim() == 3, op, ": batch1 and batch2 must be 3D tensors, got shapes ",
                  self.sizes(), " and ", mat2.sizes());
    ATHANOR_CHECK(self.size(0) == mat2.size(0) && self.size(2) == mat2.size(1), op,
                  ": Expected size for first two dimensions of batch2 tensor to be: [", self.size(0), ", ",
                  self.size(2), "] but got: [", mat2.size(0), ", ", mat2.size(1), "].");
  }
  Meta infer(const Tensor& self, const Tensor& mat2) {
    check("bmm", self, mat2);
    return {{self.size(0), self.size(1), mat2.size(2)}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& mat2) {
    launch(bmm_kernel, out, apart(self, out), apart(mat2, out), Tensor(), Scalar(1), Scalar(0));
  }
  void save(const Node& n, const Tensor& self, const Tensor& mat2) {
    if (n.needs(1)) a.save(self);
    if (n.needs(0)) b.save(mat2);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, bmm(g.grad(), transpose(g.get(b), 1, 2)));
    if (g.needs(1)) g.set(1, bmm(transpose(g.get(a), 1, 2), g.grad()));
  }
};

/// beta * self + alpha * bmm(batch1, batch2); self broadcasts.
struct Baddbmm : Autocast<AutocastTo::Lower> {
  ATHANOR_OP(
      "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor | inplace out");
  Scalar beta, alpha;
  SavedTensor a, b;
  Meta infer(const Tensor& self, const Tensor& batch1, const Tensor& batch2) {
    check_operands("baddbmm", {&self, &batch1, &batch2});
    Bmm::check("baddbmm", batch1, batch2);
    const DimVector sizes{batch1.size(0), batch1.size(1), batch2.size(2)};
    check_bias("baddbmm", self, sizes);
    return {sizes, batch1.dtype(), batch1.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& batch1, const Tensor& batch2) {
    launch(bmm_kernel, out, apart(batch1, out), apart(batch2, out), broadcast_alias(self, out.sizes()), alpha, beta);
  }
  void save(const Node& n, const Tensor&, const Tensor& batch1, const Tensor& batch2) {
    if (n.needs(2)) a.save(batch1);
    if (n.needs(1)) b.save(batch2);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, scaled(g.grad(), beta));
    if (g.needs(1)) g.set(1, scaled(bmm(g.grad(), transpose(g.get(b), 1, 2)), alpha));
    if (g.needs(2)) g.set(2, scaled(bmm(transpose(g.get(a), 1, 2), g.grad()), alpha));
  }
};

/// beta * self + alpha * sum over the batch of batch1 @ batch2.
ATHANOR_FUNCTION(
    "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor | inplace out");
Tensor addbmm(const Tensor& self_, const Tensor& batch1_, const Tensor& batch2_, const Scalar& beta,
              const Scalar& alpha) {
  const auto low = [](const Tensor& t) {
    return athanor::detail::autocast_on ? autocast_operand(t, AutocastTo::Lower) : t;
  };
  const Tensor self = low(self_), batch1 = low(batch1_), batch2 = low(batch2_);
  check_operands("addbmm", {&self, &batch1, &batch2});
  Bmm::check("addbmm", batch1, batch2);
  // The sum over the batch is one product over (batch, inner).
  const std::int64_t inner = batch1.size(0) * batch1.size(2);
  const Tensor left = reshape(permute(batch1, {1, 0, 2}), {batch1.size(1), inner});
  return addmm(self, left, reshape(batch2, {inner, batch2.size(2)}), beta, alpha);
}

/// Product of a matrix and a vector.
struct Mv : AutocastOnCuda<AutocastTo::Lower> {
  ATHANOR_OP("mv(Tensor self, Tensor vec) -> Tensor | out");
  SavedTensor a, v;
  static void check(const char* op, const Tensor& self, const Tensor& vec) {
    check_operands(op, {&self, &vec});
    ATHANOR_CHECK(self.dim() == 2 && vec.dim() == 1, op, ": vector + matrix @ vector expected, got ", self.dim(),
                  "D and ", vec.dim(), "D tensors");
    ATHANOR_CHECK(self.size(1) == vec.size(0), op, ": size mismatch, got input (", self.size(0), "x", self.size(1),
                  ") and vec (", vec.size(0), ")");
  }
  Meta infer(const Tensor& self, const Tensor& vec) {
    check("mv", self, vec);
    return {{self.size(0)}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& vec) {
    launch(gemm_kernel, column_alias(out), apart(self, out), column_alias(apart(vec, out)), Tensor(), Scalar(1),
           Scalar(0));
  }
  void save(const Node& n, const Tensor& self, const Tensor& vec) {
    if (n.needs(1)) a.save(self);
    if (n.needs(0)) v.save(vec);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, outer(g.grad(), g.get(v)));
    if (g.needs(1)) g.set(1, mv(t(g.get(a)), g.grad()));
  }
};

/// beta * self + alpha * (mat @ vec); self broadcasts.
struct Addmv : AutocastOnCuda<AutocastTo::Lower> {
  ATHANOR_OP("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor | inplace out");
  Scalar beta, alpha;
  SavedTensor a, v;
  Meta infer(const Tensor& self, const Tensor& mat, const Tensor& vec) {
    check_operands("addmv", {&self, &mat, &vec});
    Mv::check("addmv", mat, vec);
    check_bias("addmv", self, {mat.size(0)});
    return {{mat.size(0)}, mat.dtype(), mat.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& mat, const Tensor& vec) {
    launch(gemm_kernel, column_alias(out), apart(mat, out), column_alias(apart(vec, out)),
           column_alias(broadcast_alias(self, out.sizes())), alpha, beta);
  }
  void save(const Node& n, const Tensor&, const Tensor& mat, const Tensor& vec) {
    if (n.needs(2)) a.save(mat);
    if (n.needs(1)) v.save(vec);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, scaled(g.grad(), beta));
    if (g.needs(1)) g.set(1, scaled(outer(g.grad(), g.get(v)), alpha));
    if (g.needs(2)) g.set(2, scaled(mv(t(g.get(a)), g.grad()), alpha));
  }
};

/// Inner product of two vectors.
struct Dot {
  ATHANOR_OP("dot(Tensor self, Tensor tensor) -> Tensor | out");
  SavedTensor a, b;
  Meta infer(const Tensor& self, const Tensor& tensor) {
    check_operands("dot", {&self, &tensor});
    ATHANOR_CHECK(self.dim() == 1 && tensor.dim() == 1, "dot: 1D tensors expected, but got ", self.dim(), "D and ",
                  tensor.dim(), "D tensors");
    ATHANOR_CHECK(self.size(0) == tensor.size(0), "dot: inconsistent tensor size, expected tensor [", self.size(0),
                  "] and src [", tensor.size(0), "] to have the same number of elements");
    return {{}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& tensor) {
    launch(gemm_kernel, detail::alias(out, {1, 1}, {1, 1}, out.storage_offset()), row_alias(apart(self, out)),
           column_alias(apart(tensor, out)), Tensor(), Scalar(1), Scalar(0));
  }
  void save(const Node& n, const Tensor& self, const Tensor& tensor) {
    if (n.needs(1)) a.save(self);
    if (n.needs(0)) b.save(tensor);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, mul(g.grad(), g.get(b)));
    if (g.needs(1)) g.set(1, mul(g.grad(), g.get(a)));
  }
};

/// The sum of products of two vectors of one length.
ATHANOR_FUNCTION("vdot(Tensor self, Tensor other) -> Tensor | out");
Tensor vdot(const Tensor& self, const Tensor& other) { return dot(self, other); }

/// Every product of an element of self and an element of vec2.
ATHANOR_FUNCTION("outer(Tensor self, Tensor vec2) -> Tensor | out");
Tensor outer(const Tensor& self, const Tensor& vec2) {
  ATHANOR_CHECK(self.dim() == 1 && vec2.dim() == 1, "outer: Expected 1-D arguments, got ", self.dim(), "-D and ",
                vec2.dim(), "-D");
  return mul(unsqueeze(self, 1), vec2);
}

/// Another name of outer: the products of each element of input with each of vec2, (n, m).
ATHANOR_FUNCTION("ger(Tensor self, Tensor vec2) -> Tensor | out");
Tensor ger(const Tensor& self, const Tensor& vec2) { return outer(self, vec2); }

/// beta * self + alpha * outer(vec1, vec2).
ATHANOR_FUNCTION(
    "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor | inplace out");
Tensor addr(const Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  ATHANOR_CHECK(vec1.dim() == 1 && vec2.dim() == 1, "addr: Expected 1-D argument vec1 and vec2, got ", vec1.dim(),
                "-D and ", vec2.dim(), "-D");
  check_bias("addr", self, {vec1.size(0), vec2.size(0)});
  const Tensor product = scaled(outer(vec1, vec2), alpha);
  return beta.toDouble() == 0 ? product : add(product, scaled(self, beta));
}

namespace {

/// (batch…, k) × (k [, n]): one product over all rows.
Tensor matmul_folded(const Tensor& a, const Tensor& b) {
  DimVector sizes(a.sizes());
  const std::int64_t k = sizes.back();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < sizes.size(); ++d) rows *= sizes[d];
  sizes.pop_back();
  const Tensor flat = reshape(a, {rows, k});
  if (b.dim() == 1) return reshape(mv(flat, b), sizes);
  sizes.push_back(b.size(1));
  return reshape(mm(flat, b), sizes);
}

Tensor matmul_batched(const Tensor& a, const Tensor& b) {
  const bool a_vector = a.dim() == 1, b_vector = b.dim() == 1;
  const Tensor left = a_vector ? unsqueeze(a, 0) : a, right = b_vector ? unsqueeze(b, 1) : b;
  const std::int64_t m = left.size(-2), k = left.size(-1), n = right.size(-1), inner = right.size(-2);
  ATHANOR_CHECK(k == inner, "matmul: mat1 and mat2 shapes cannot be multiplied (", a.sizes(), " and ", b.sizes(), ")");
  auto batch_of = [](const Tensor& t) { return t.sizes().slice(0, t.sizes().size() - 2); };
  DimVector batch = broadcast_shapes(batch_of(left), batch_of(right), "matmul");
  std::int64_t count = 1;
  for (const std::int64_t s : batch) count *= s;
  auto as_batch = [&](const Tensor& t, std::int64_t rows, std::int64_t cols) {
    if (t.dim() == 2) return expand(t, {count, rows, cols});
    DimVector full = batch;
    full.push_back(rows);
    full.push_back(cols);
    return reshape(expand(t, full), {count, rows, cols});
  };
  Tensor out = bmm(as_batch(left, m, k), as_batch(right, k, n));
  if (!a_vector) batch.push_back(m);
  if (!b_vector) batch.push_back(n);
  return reshape(out, batch);
}

}  // namespace

/// PyTorch's general product: vectors, matrices, and batches of matrices that broadcast.
ATHANOR_FUNCTION("matmul(Tensor self, Tensor other) -> Tensor | out");
Tensor matmul(const Tensor& self, const Tensor& other) {
  if (__builtin_expect(athanor::detail::autocast_on, 0)) {
    const Tensor a = autocast_operand(self, AutocastTo::Lower), b = autocast_operand(other, AutocastTo::Lower);
    if (!a.is_same(self) || !b.is_same(other)) return matmul(a, b);
  }
  check_operands("matmul", {&self, &other});
  const std::int64_t m = self.dim(), n = other.dim();
  ATHANOR_CHECK(m != 0 && n != 0, "matmul: both arguments to matmul need to be at least 1D, but they are ", m, "D and ",
                n, "D");
  if (m == 1 && n == 1) return dot(self, other);
  if (m == 2 && n == 1) return mv(self, other);
  if (m == 1 && n == 2) {
    ATHANOR_CHECK(self.size(0) == other.size(0), "matmul: mat1 and mat2 shapes cannot be multiplied (1x", self.size(0),
                  " and ", other.size(0), "x", other.size(1), ")");
    return mv(t(other), self);
  }
  if (m == 2 && n == 2) return mm(self, other);
  if (n <= 2) return matmul_folded(self, other);
  // A product over all columns spares the gradient of the shared left matrix one copy per batch.
  if (m <= 2 && GradMode::is_enabled() && self.requires_grad()) {
    const Tensor flipped = matmul_folded(transpose(other, -2, -1), m == 1 ? self : t(self));
    return m == 1 ? flipped : transpose(flipped, -2, -1);
  }
  return matmul_batched(self, other);
}

namespace {

std::int64_t rows_of(const Tensor& input) {
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d + 1 < input.dim(); ++d) rows *= input.size(d);
  return rows;
}

/// The step between rows of `input` (…, k), if its leading dims are one run of memory. Dims of one element may have any
/// stride.
std::optional<std::int64_t> row_step(const Tensor& input) {
  std::int64_t step = input.size(-1), next = -1;
  for (std::int64_t d = input.dim() - 2; d >= 0; --d) {
    if (input.size(d) == 1) continue;
    if (next == -1)
      step = input.stride(d);
    else if (input.stride(d) != next)
      return std::nullopt;
    next = input.stride(d) * input.size(d);
  }
  return step;
}

/// `input` (…, k) read as (rows, k), for kernels; its leading dims must be one run of memory.
Tensor rows_alias(const Tensor& input) {
  if (input.dim() == 2) return input;
  return detail::alias(input, {rows_of(input), input.size(-1)}, {*row_step(input), input.stride(-1)},
                       input.storage_offset());
}

}  // namespace

/// Shared by linear and its fused forms.
struct LinearBase {
  SavedTensor x, w;
  std::int64_t in_features = 0;
  bool w_columns = false;
  void prepare(Tensor& input, Tensor& weight, Tensor& bias) {
    Autocast<AutocastTo::Lower>::prepare(input, weight, bias);
    if (input.defined() && input.dim() > 2 && !row_step(input)) input = contiguous(input);
  }
  Meta infer(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    check_operands("linear", {&input, &weight});
    ATHANOR_CHECK(input.dim() >= 1, "linear: both arguments to linear need to be at least 1D, but they are ",
                  input.dim(), "D and ", weight.dim(), "D");
    ATHANOR_CHECK(weight.dim() == 2, "linear: weight must be 2-D (out_features, in_features), got shape ",
                  weight.sizes());
    in_features = input.size(-1);
    ATHANOR_CHECK(in_features == weight.size(1), "linear: mat1 and mat2 shapes cannot be multiplied (", rows_of(input),
                  "x", in_features, " and ", weight.size(1), "x", weight.size(0), "); the last size of the input must ",
                  "be the weight's in_features");
    if (bias.defined()) {
      check_operands("linear", {&input, &bias});
      ATHANOR_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), "linear: expected bias of shape [",
                    weight.size(0), "], got ", bias.sizes());
    }
    DimVector sizes(input.sizes());
    sizes.back() = weight.size(0);
    return {sizes, input.dtype(), input.device(), {}};
  }
  void save(const Node& n, const Tensor& input, const Tensor& weight, const Tensor&) {
    w_columns = is_column_major(weight.sizes(), weight.strides());
    if (n.needs(1)) x.save(input);
    if (n.needs(0)) w.save(weight);
  }
  /// Whether the weight's gradient is that of a single sample, and large enough to be better multiplied out by who
  /// reads it: mostly the optimizer, in the first cache.
  bool may_stay_factors(const GradCall& g, const Tensor& d, const Tensor& input) const {
    constexpr std::int64_t kLeast = 1 << 13, kLeastSide = 8;
    return d.size(0) == 1 && d.size(1) * in_features >= kLeast && std::min(d.size(1), in_features) >= kLeastSide &&
           !w_columns && d.dtype() == DType::Float && input.dtype() == DType::Float && hidden_layouts_enabled() &&
           is_first_gradient(*g.node(), 1);
  }
  /// The gradients, given that of the product before any epilogue.
  void grad_of_product(GradCall& g, const Tensor& d) {
    const std::int64_t n = d.size(-1);
    const Tensor rows = d.dim() == 2 ? d : reshape(d, {rows_of(d), n});
    if (g.needs(0)) {
      const Tensor dx = mm(rows, g.get(w));
      DimVector sizes(d.sizes());
      sizes.back() = in_features;
      g.set(0, d.dim() == 2 ? dx : reshape(dx, sizes));
    }
    if (g.needs(1)) {
      const Tensor input = g.get(x);
      const Tensor x_rows = input.dim() == 2 ? input : reshape(input, {rows_of(input), in_features});
      g.set(1, may_stay_factors(g, rows, x_rows) ? detail::hidden_outer(rows, x_rows)
                                                 : product_in_layout(t(rows), x_rows, w_columns));
    }
    if (g.needs(2)) g.set(2, rows.size(0) == 1 ? reshape(rows, {n}) : sum(rows, IntArrayRef{0}, false, std::nullopt));
  }
  static void run_epilogue(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias,
                           Epilogue epilogue) {
    launch(linear_kernel, rows_alias(out), rows_alias(input), weight, bias, epilogue);
  }
};

/// input (…, in_features) times weightᵀ (out_features, in_features), plus bias.
struct Linear : LinearBase {
  ATHANOR_OP("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor | out");
  static constexpr const char* grad_name = "AddmmBackward0";
  static constexpr bool inputs_apart = true;
  void run(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias) {
    const bool one_run = out.dim() <= 2 || row_step(out);
    const Tensor rows = one_run ? out : detail::empty_tensor(out.sizes(), out.dtype(), out.device());
    run_epilogue(rows, input, weight, bias, Epilogue::None);
    if (!one_run) launch(copy_kernel, out, rows);
  }
  void grad(GradCall& g) { grad_of_product(g, g.grad()); }
};

}  // namespace athanor::ops

#include "athanor/ops/matmul.glue.inc"
