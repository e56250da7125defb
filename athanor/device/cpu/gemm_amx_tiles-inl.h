// The registers of the matrix units. Included where amx-tile is among the target's attributes, after immintrin.h.
#pragma once

namespace athanor::amx {
namespace {

/// All eight tiles in full size, until the end of the scope.
class Tiles {
 public:
  Tiles() {
    static constexpr Shapes kShapes;
    _tile_loadconfig(&kShapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  // Not a local object: GCC's intrinsic says that it reads 8 bytes, and the stores of the rest would be dropped.
  struct alignas(64) Shapes {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
};

}  // namespace
}  // namespace athanor::amx
