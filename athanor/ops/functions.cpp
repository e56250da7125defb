// Class Tensor's methods and the public functions: each hands its arguments to the op of its name. Compiled here once,
// because as inline functions they would cost every program a third of its compile time.
#include "athanor/ops/all_ops.h"
#include "athanor/ops/tensor.h"

namespace athanor {

namespace detail {
TensorBaseList base_list(TensorList list) { return {static_cast<const TensorBase*>(list.data()), list.size()}; }
Tensor wrap(TensorBase&& t) { return Tensor(std::move(t)); }
std::vector<Tensor> wrap(std::vector<TensorBase>&& list) {
  return {std::make_move_iterator(list.begin()), std::make_move_iterator(list.end())};
}
template <class... B>
auto wrap(std::tuple<B...>&& t) {
  return std::apply([](auto&&... e) { return std::make_tuple(Tensor(std::move(e))...); }, std::move(t));
}
}  // namespace detail

#include "athanor/ops/function_bodies.inc"

}  // namespace athanor
