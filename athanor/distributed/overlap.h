#pragma once
/// Whether the tensors of a call lie apart in memory: backends write outputs while other ranks still read inputs. Not
/// part of the interface.

#include "athanor/ops/tensor.h"

namespace athanor::distributed {

/// False only if no byte belongs to both. Exact for slices, steps, columns and transposes of one tensor; what cannot be
/// told counts as shared.
bool may_share_memory(const Tensor& a, const Tensor& b);

/// Tensors of a call, and how messages name them.
struct CallList {
  TensorList tensors;
  const char* name;          ///< "output" of "output[3]", or "the output"
  bool alone = false;        ///< one tensor, named without a number
  std::size_t row_size = 0;  ///< of lists in a list: "output[1][3]"
};

/// Places of an output and an input that may be the same memory, if they are so exactly.
struct SamePlace {
  std::size_t output, input;
};

/// Throws ValueError if two outputs, or an output and an input, share memory.
void check_apart(const char* op, int rank, const CallList& output, const CallList& input = {{}, ""},
                 const SamePlace* allowed = nullptr);

/// The same for a tensor of `size` slots and one of a slot's size, which may be exactly the slot of `rank`.
void check_slot(const char* op, int rank, int size, const char* whole_name, const Tensor& whole, const char* part_name,
                const Tensor& part);

}  // namespace athanor::distributed
