#pragma once
/// Hidden layouts as ops see them. Gradients of weights for a single sample may be made as products of two vectors,
/// which the optimizers multiply out as they go. A result may be made in blocks of channels (Meta::block); an op that
/// declares `static constexpr bool accepts_hidden = true` may make such results, and may hand tensors to its kernels as
/// they are stored, by `Stored` instead of the tensor itself. Everything else goes through view_of() and data_ptr(),
/// where Storage::data() restores the plain order: that is the one place, and forgetting about hidden layouts is always
/// correct.
///
/// ATHANOR_HIDDEN_LAYOUTS=0 keeps every result plain.

#include "athanor/tensor/tensor_base.h"

namespace athanor {

/// Whether ops may make results in hidden layouts.
bool hidden_layouts_enabled();
/// Overrides the environment for the whole process.
void set_hidden_layouts_enabled(bool on);

namespace detail {

int find_block(const TensorBase& t);
/// Channels per block if `t` is all of a storage in blocks of its own channels; 0 if its values are plain, or it is a
/// view in which those blocks are not (samples, channels, spatial…).
inline int hidden_block(const TensorBase& t) {
  return t.impl() && __builtin_expect(t.impl()->storage->is_hidden(), 0) ? find_block(t) : 0;
}

/// Whether `t` may be brought into blocks of `block` channels, a power of two up to 64.
bool can_block(const TensorBase& t, int block);

/// What else than plain values a kernel takes.
enum class HiddenForm { Blocks, OuterProduct };

/// An operand handed to a kernel as it is stored. Keeps the bytes, should another thread restore the storage meanwhile.
class Stored {
 public:
  explicit Stored(const TensorBase& t, HiddenForm accepted = HiddenForm::Blocks);
  /// `t` in blocks of `block` channels: as it is, or a copy.
  Stored(const TensorBase& t, int block);
  const TensorBase& tensor() const { return tensor_; }
  /// What the kernel gets. Restores what cannot be handed over as it is.
  View view() const;

 private:
  TensorBase tensor_;
  IntrusivePtr<HiddenLayout> layout_;
};

/// The products of `column`'s values and `row`'s, a matrix without history; each a float32 matrix of one row. Changes
/// to them afterwards do not count.
TensorBase hidden_outer(const TensorBase& column, const TensorBase& row);

/// A copy of `t` (at least two dims) in blocks of `block` channels, without history.
TensorBase to_blocks(const TensorBase& t, int block);

}  // namespace detail
}  // namespace athanor
