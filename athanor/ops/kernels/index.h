#pragma once
/// Indexing and rearranging kernels. Thread-safe; parallel inside for large outputs.
///
/// Common rules. Every dtype and all strides are allowed unless said otherwise; operands called the same dtype must be
/// so. Index operands are Long or Int. "out holds self" means: the op has copied self into out (or out is self), and
/// the kernel changes it in place. Unless a kernel says otherwise its inputs must not share memory with its outputs.
///
/// Bounds. The advanced-index kernels, take, put and index_fill let a negative index count from the end; gather,
/// scatter, index_select, index_add, index_copy, index_reduce, embedding refuse it, as PyTorch does. An index out of
/// range throws IndexError("index 7 is out of bounds for dimension 0 with size 5") naming the first one in row-major
/// order. Kernels that change an existing tensor check all indices before they write; those that fill a fresh result
/// may have written part of it.
///
/// Repeats. Where several indices name one place, a copy keeps the last in row-major order of the index and a reduction
/// combines in that order, whatever the number of threads. Half and bfloat16 sums are rounded at each step except in
/// embedding_backward.

#include "athanor/base/array_ref.h"
#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// How scatter and index_reduce combine what is there with what comes. Integer Mean rounds towards minus infinity; Amax
/// and Amin keep NaN; for bool Add and Amax are "or", Multiply and Amin "and", Mean is refused with
/// NotImplementedError.
enum class IndexReduce : std::int8_t { None, Add, Multiply, Amax, Amin, Mean };

// ---- one dim
// ---------------------------------------------------------------------------------------------------------

/// out[.., i, ..] = in[.., index[i], ..] along `dim`. index: 1-d (or 0-d, one entry); out.size(dim) = index.numel.
/// A 0-d `in` counts as 1-d.
extern Kernel<void(const View& out, const View& in, const View& index, std::int64_t dim)> index_select_kernel;

/// out[i][j] = in[index[i][j]][j] for dim 0, and so on. index has out's shape; index.size(d) <= in.size(d) for d !=
/// dim. 0-d operands count as 1-d.
extern Kernel<void(const View& out, const View& in, const View& index, std::int64_t dim)> gather_kernel;

/// out[index[i][j]][j] op= src[i][j] for dim 0. out holds self. index.size(d) <= src.size(d) for all d and
/// <= out.size(d) for d != dim. Without `include_self` the old values of the places written do not take part (None
/// ignores it).
extern Kernel<void(const View& out, const View& index, const View& src, std::int64_t dim, IndexReduce reduce,
                   bool include_self)>
    scatter_kernel;
/// The same with one value in place of src; reduce is None, Add or Multiply.
extern Kernel<void(const View& out, const View& index, Scalar value, std::int64_t dim, IndexReduce reduce)>
    scatter_value_kernel;

/// out[.., index[i], ..] += alpha * source[.., i, ..]. out holds self; source has its shape but for
/// source.size(dim) = index.numel.
extern Kernel<void(const View& out, const View& index, const View& source, std::int64_t dim, Scalar alpha)>
    index_add_kernel;
/// out[.., index[i], ..] = source[.., i, ..]; the rest as index_add.
extern Kernel<void(const View& out, const View& index, const View& source, std::int64_t dim)> index_copy_kernel;
/// out[.., index[i], ..] = value. out holds self.
extern Kernel<void(const View& out, const View& index, Scalar value, std::int64_t dim)> index_fill_kernel;
/// out[.., index[i], ..] op= source[.., i, ..] with the reductions of scatter but None.
extern Kernel<void(const View& out, const View& index, const View& source, std::int64_t dim, IndexReduce reduce,
                   bool include_self)>
    index_reduce_kernel;

// ---- advanced indexing
// -----------------------------------------------------------------------------------------------

/// in[indices]: indices[d] belongs to dim d of `in`; an undefined view, or none for trailing dims, takes the whole dim.
/// The index views broadcast against each other to the index shape (as they are; the kernel does it). out's shape: if
/// the indexed dims are adjacent, the index shape in their place, else the index shape first; that is index_shape().
/// Masks become index views by nonzero before.
extern Kernel<void(const View& out, const View& in, ArrayRef<View> indices)> index_kernel;
/// out[indices] = values, or += with `accumulate`. out holds self; values broadcast against index_shape(out, indices).
extern Kernel<void(const View& out, const View& values, ArrayRef<View> indices, bool accumulate)> index_put_kernel;

/// Shape of x[indices] for a tensor x of shape `sizes`, as above. Throws IndexError if there are more indices than dims
/// or the index shapes do not broadcast.
DimVector index_shape(IntArrayRef sizes, ArrayRef<View> indices);

/// out = in.flatten()[index], out has index's shape.
extern Kernel<void(const View& out, const View& in, const View& index)> take_kernel;
/// out.flatten()[index] = source, or += with `accumulate`; source has index's number of elements. out holds self.
extern Kernel<void(const View& out, const View& index, const View& source, bool accumulate)> put_kernel;

// ---- masks
// -----------------------------------------------------------------------------------------------------------

/// out = mask ? value : in. mask (Bool) and in broadcast against out; in may be out itself.
extern Kernel<void(const View& out, const View& in, const View& mask, Scalar value)> masked_fill_kernel;
/// out[mask] = the first elements of source in row-major order. out holds self; mask broadcasts against it. Throws
/// Error before writing if source has fewer elements than mask has true ones.
extern Kernel<void(const View& out, const View& mask, const View& source)> masked_scatter_kernel;
/// out = in[mask] in row-major order. in and mask broadcast against each other; out is 1-d with as many elements as the
/// broadcast mask has true ones (nonzero_count of the mask, expanded).
extern Kernel<void(const View& out, const View& in, const View& mask)> masked_select_kernel;
/// count (one Long element) = number of elements of `in` that are not zero (NaN is not).
extern Kernel<void(const View& count, const View& in)> nonzero_count_kernel;
/// out: Long [count, in.ndim], the coordinates of the elements that are not zero, in row-major order.
extern Kernel<void(const View& out, const View& in)> nonzero_kernel;

// ---- joining and rearranging
// -----------------------------------------------------------------------------------------

/// out = the inputs one after another along dim. Inputs of another dtype are converted; 1-d inputs without elements are
/// skipped, whatever out's shape, as PyTorch does.
extern Kernel<void(const View& out, ArrayRef<View> inputs, std::int64_t dim)> cat_kernel;
/// Reverses the order along `dims` (each once, not negative).
extern Kernel<void(const View& out, const View& in, IntArrayRef dims)> flip_kernel;
/// Moves element i of dims[k] to (i + shifts[k]) mod size; dims not negative, repeats add up. Rolling the flattened
/// tensor: pass 1-d views.
extern Kernel<void(const View& out, const View& in, IntArrayRef shifts, IntArrayRef dims)> roll_kernel;
/// in tiled to out's shape: out.size(d) is a multiple of in.size(d), trailing dims aligned.
extern Kernel<void(const View& out, const View& in)> repeat_kernel;
/// Entry i of `dim` repeated repeats[i] times (or repeats[0] times if there is one). Throws ValueError for a negative
/// count or if they do not add up to out.size(dim).
extern Kernel<void(const View& out, const View& in, const View& repeats, std::int64_t dim)> repeat_interleave_kernel;
/// The lower (upper) triangle of the last two dims, zero elsewhere; diagonal as in PyTorch. in may be out itself.
extern Kernel<void(const View& out, const View& in, std::int64_t diagonal)> tril_kernel;
extern Kernel<void(const View& out, const View& in, std::int64_t diagonal)> triu_kernel;

// ---- embedding
// -------------------------------------------------------------------------------------------------------

/// out[.., :] = weight[index[..], :]; weight 2-d, out's shape is index's and weight.size(1).
extern Kernel<void(const View& out, const View& weight, const View& index)> embedding_kernel;
/// grad_weight (contiguous, floating) = for every row the sum of grad's rows whose index names it, zero for rows not
/// named and for padding_idx (-1: none). scale_grad_by_freq divides by how often the row is named. Halves are summed in
/// float32 and rounded once.
extern Kernel<void(const View& grad_weight, const View& grad, const View& index, std::int64_t padding_idx,
                   bool scale_grad_by_freq)>
    embedding_backward_kernel;
/// Rows of weight named by index whose norm of order `norm_type` exceeds max_norm are scaled down to it. Each once.
extern Kernel<void(const View& weight, const View& index, double max_norm, double norm_type)> embedding_renorm_kernel;
/// out (Long, index's shape and a last dim of num_classes) = 1 where the last coordinate is the index, else 0.
/// Throws Error for a class below 0 or not below out.size(-1).
extern Kernel<void(const View& out, const View& index)> one_hot_kernel;

}  // namespace athanor
