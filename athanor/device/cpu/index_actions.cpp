#include <cstring>

#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/index_direct.h"
#include "athanor/ops/kernels/copy.h"

namespace athanor::cpu {
namespace {

template <class U, bool kRead>
inline void move(char* base, char* flat) {
  if constexpr (kRead)
    std::memcpy(flat, base, sizeof(U));
  else
    std::memcpy(base, flat, sizeof(U));
}

template <class U, bool kRead>
void move_elements(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n,
                   const void*) {
  if (flat_stride == sizeof(U)) {
    for (std::int64_t j = 0; j < n; ++j)
      move<U, kRead>(base + offsets[j], flat + j * static_cast<std::int64_t>(sizeof(U)));
  } else {
    for (std::int64_t j = 0; j < n; ++j) move<U, kRead>(base + offsets[j], flat + j * flat_stride);
  }
}

template <class U, bool kRead>
void move_row(char* base, std::int64_t base_stride, char* flat, std::int64_t flat_stride, std::int64_t n, const void*) {
  if (n == 0) return;  // the result of a selection of nothing has no address
  if (base_stride == sizeof(U) && flat_stride == sizeof(U)) {
    std::memcpy(kRead ? flat : base, kRead ? base : flat, static_cast<std::size_t>(n) * sizeof(U));
  } else {
    for (std::int64_t j = 0; j < n; ++j) move<U, kRead>(base + j * base_stride, flat + j * flat_stride);
  }
}

template <std::size_t kBytes, bool kRead>
void move_fixed(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    char* b = base + offsets[j];
    char* f = flat + j * flat_stride;
    std::memcpy(kRead ? f : b, kRead ? b : f, kBytes);
  }
}

template <bool kRead>
void move_rows(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n,
               std::int64_t bytes) {
  switch (bytes) {
    case 8:
      return move_fixed<8, kRead>(base, offsets, flat, flat_stride, n);
    case 12:
      return move_fixed<12, kRead>(base, offsets, flat, flat_stride, n);
    case 16:
      return move_fixed<16, kRead>(base, offsets, flat, flat_stride, n);
    case 32:
      return move_fixed<32, kRead>(base, offsets, flat, flat_stride, n);
    case 64:
      return move_fixed<64, kRead>(base, offsets, flat, flat_stride, n);
    case 128:
      return move_fixed<128, kRead>(base, offsets, flat, flat_stride, n);
    default:
      break;
  }
  for (std::int64_t j = 0; j < n; ++j) {
    char* b = base + offsets[j];
    char* f = flat + j * flat_stride;
    std::memcpy(kRead ? f : b, kRead ? b : f, static_cast<std::size_t>(bytes));
  }
}

template <class U, bool kRead>
bool move_direct(char* base, const IndexGrid& grid, const IndexOperand& operand, char* flat, std::int64_t flat_stride,
                 std::int64_t flat_row_stride, const void*) {
  return direct_loop<sizeof(U)>(base, grid, operand, flat, flat_stride, flat_row_stride,
                                [](char* b, char* f) { move<U, kRead>(b, f); });
}

template <class U, bool kRead>
constexpr IndexAction kMoves{&move_elements<U, kRead>, &move_row<U, kRead>, &move_rows<kRead>, &move_direct<U, kRead>,
                             nullptr};

template <bool kRead>
const IndexAction& moves(std::int64_t item) {
  switch (item) {
    case 1:
      return kMoves<std::uint8_t, kRead>;
    case 2:
      return kMoves<std::uint16_t, kRead>;
    case 4:
      return kMoves<std::uint32_t, kRead>;
    default:
      return kMoves<std::uint64_t, kRead>;
  }
}

}  // namespace

const IndexAction& read_action(std::int64_t item) { return moves<true>(item); }
const IndexAction& write_action(std::int64_t item) { return moves<false>(item); }

ElementBytes::ElementBytes(Scalar value, DType t) : bytes{} {
  static constexpr std::int64_t kOne = 1;
  View one;
  one.data = bytes;
  one.sizes = one.strides = &kOne;
  one.numel = 1;
  one.dtype = t;
  one.ndim = 1;
  fill_kernel.get(DeviceType::CPU)(one, value);
}

}  // namespace athanor::cpu
