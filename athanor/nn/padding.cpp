#include "athanor/nn/padding.h"

namespace athanor::nn {

namespace functional {

Tensor pad(const Tensor& input, const PadFuncOptions& options) {
  if (options.mode() == kConstant) return constant_pad_nd(input, options.pad(), options.value());
  const char* mode = options.mode() == kReflect ? "reflect" : options.mode() == kReplicate ? "replicate" : "circular";
  return athanor::pad(input, options.pad(), mode);
}

}  // namespace functional

void detail::print_padding(std::ostream& stream, const char* name, std::size_t dims, IntArrayRef padding,
                           const double* value) {
  stream << "torch::nn::" << name << dims << "d(padding=";
  athanor::detail::print_list(stream, padding);
  if (value) stream << ", value=" << *value;
  stream << ")";
}

}  // namespace athanor::nn
