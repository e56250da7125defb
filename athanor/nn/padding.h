#pragma once
/// Padding layers and functional::pad.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

namespace functional {

/// `pad`: (before, after) of the last dim, then of the one before it, and so on.
struct PadFuncOptions {
  using mode_t = enumtype::OneOf<enumtype::kConstant, enumtype::kReflect, enumtype::kReplicate, enumtype::kCircular>;
  PadFuncOptions(std::vector<std::int64_t> pad) : pad_(std::move(pad)) {}
  ATHANOR_ARG(std::vector<std::int64_t>, pad);
  ATHANOR_ARG(mode_t, mode) = kConstant;
  ATHANOR_ARG(double, value) = 0;
};

Tensor pad(const Tensor& input, const PadFuncOptions& options);

}  // namespace functional

template <std::size_t D>
struct ReflectionPadOptions {
  ReflectionPadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}
  ATHANOR_ARG(ExpandingArray<D * 2>, padding);
};
template <std::size_t D>
struct ReplicationPadOptions {
  ReplicationPadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}
  ATHANOR_ARG(ExpandingArray<D * 2>, padding);
};
template <std::size_t D>
struct CircularPadOptions {
  CircularPadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}
  ATHANOR_ARG(ExpandingArray<D * 2>, padding);
};
template <std::size_t D>
struct ZeroPadOptions {
  ZeroPadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}
  ATHANOR_ARG(ExpandingArray<D * 2>, padding);
};
template <std::size_t D>
struct ConstantPadOptions {
  ConstantPadOptions(ExpandingArray<D * 2> padding, double value) : padding_(padding), value_(value) {}
  ATHANOR_ARG(ExpandingArray<D * 2>, padding);
  ATHANOR_ARG(double, value);
};

namespace detail {
void print_padding(std::ostream& stream, const char* name, std::size_t dims, IntArrayRef padding, const double* value);
}

#define ATHANOR_PAD_LAYER(Name, D, mode_, options_type)                                                              \
  using Name##D##dOptions = options_type<D>;                                                                         \
  class Name##D##dImpl : public Cloneable<Name##D##dImpl> {                                                          \
   public:                                                                                                           \
    Name##D##dImpl(ExpandingArray<D * 2> padding) : options(padding) {}                                              \
    explicit Name##D##dImpl(const Name##D##dOptions& options) : options(options) {}                                  \
    void reset() override {}                                                                                         \
    void pretty_print(std::ostream& stream) const override {                                                         \
      detail::print_padding(stream, #Name, D, options.padding(), nullptr);                                           \
    }                                                                                                                \
    Tensor forward(const Tensor& input) {                                                                            \
      return in_module(*this, [&] {                                                                                  \
        return functional::pad(input, functional::PadFuncOptions(IntArrayRef(options.padding()).vec()).mode(mode_)); \
      });                                                                                                            \
    }                                                                                                                \
    Name##D##dOptions options;                                                                                       \
  };                                                                                                                 \
  ATHANOR_LIBRARY_MODULE(Name##D##d)

ATHANOR_PAD_LAYER(ReflectionPad, 1, kReflect, ReflectionPadOptions);
ATHANOR_PAD_LAYER(ReflectionPad, 2, kReflect, ReflectionPadOptions);
ATHANOR_PAD_LAYER(ReflectionPad, 3, kReflect, ReflectionPadOptions);
ATHANOR_PAD_LAYER(ReplicationPad, 1, kReplicate, ReplicationPadOptions);
ATHANOR_PAD_LAYER(ReplicationPad, 2, kReplicate, ReplicationPadOptions);
ATHANOR_PAD_LAYER(ReplicationPad, 3, kReplicate, ReplicationPadOptions);
ATHANOR_PAD_LAYER(CircularPad, 1, kCircular, CircularPadOptions);
ATHANOR_PAD_LAYER(CircularPad, 2, kCircular, CircularPadOptions);
ATHANOR_PAD_LAYER(CircularPad, 3, kCircular, CircularPadOptions);
ATHANOR_PAD_LAYER(ZeroPad, 1, kConstant, ZeroPadOptions);
ATHANOR_PAD_LAYER(ZeroPad, 2, kConstant, ZeroPadOptions);
ATHANOR_PAD_LAYER(ZeroPad, 3, kConstant, ZeroPadOptions);
#undef ATHANOR_PAD_LAYER

#define ATHANOR_CONSTANT_PAD_LAYER(D)                                                                        \
  using ConstantPad##D##dOptions = ConstantPadOptions<D>;                                                    \
  class ConstantPad##D##dImpl : public Cloneable<ConstantPad##D##dImpl> {                                    \
   public:                                                                                                   \
    ConstantPad##D##dImpl(ExpandingArray<D * 2> padding, double value) : options(padding, value) {}          \
    explicit ConstantPad##D##dImpl(const ConstantPad##D##dOptions& options) : options(options) {}            \
    void reset() override {}                                                                                 \
    void pretty_print(std::ostream& stream) const override {                                                 \
      detail::print_padding(stream, "ConstantPad", D, options.padding(), &options.value());                  \
    }                                                                                                        \
    Tensor forward(const Tensor& input) {                                                                    \
      return in_module(*this, [&] {                                                                          \
        return functional::pad(                                                                              \
            input, functional::PadFuncOptions(IntArrayRef(options.padding()).vec()).value(options.value())); \
      });                                                                                                    \
    }                                                                                                        \
    ConstantPad##D##dOptions options;                                                                        \
  };                                                                                                         \
  ATHANOR_LIBRARY_MODULE(ConstantPad##D##d)

ATHANOR_CONSTANT_PAD_LAYER(1);
ATHANOR_CONSTANT_PAD_LAYER(2);
ATHANOR_CONSTANT_PAD_LAYER(3);
#undef ATHANOR_CONSTANT_PAD_LAYER

}  // namespace athanor::nn
