// Gradients are on the device of what they are the gradient of.
#include <gmock/gmock.h>

#include "athanor/autograd/function.h"
#include "device_queue/queued_device.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Its gradient comes from the device asked for.
struct Astray : autograd::Function<Astray> {
  static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x, std::int64_t device) {
    ctx->saved_data["device"] = device;
    return x * 2;
  }
  static autograd::variable_list backward(autograd::AutogradContext* ctx, autograd::variable_list g) {
    const std::int64_t device = ctx->saved_data["device"].toInt();
    return {(g[0] * 2).to(device < 0 ? Device() : on(static_cast<int>(device))), Tensor()};
  }
};

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_F(QueuedDevice, AGradientOfAnotherDeviceIsRefused) {
  const Tensor x = ones({3}, options_on(1)).requires_grad_();
  for (const auto& [device, name] : {std::pair{0, "got cpu:0"}, {-1, "got cpu;"}}) {
    EXPECT_THAT(error_of([&, device = device] { Astray::apply(x, device).sum().backward(); }),
                AllOf(HasSubstr("Function Astray returned an invalid gradient"), HasSubstr("expected device cpu:1"),
                      HasSubstr(name)));
    EXPECT_THAT(error_of([&, device = device] { autograd::grad({Astray::apply(x * 1, device).sum()}, {x}); }),
                HasSubstr(name));
  }
  EXPECT_FALSE(x.grad().defined());
  Astray::apply(x, 1).sum().backward();
  EXPECT_EQ(x.grad().cpu()[0].item<float>(), 2.0F);
}

TEST_F(QueuedDevice, AnIncomingGradientOfAnotherDeviceIsRefused) {
  const Tensor x = ones({3}, options_on(1)).requires_grad_();
  EXPECT_THAT(error_of([&] { (x * 2).backward(ones({3}, options_on(0))); }),
              AllOf(HasSubstr("invalid gradient at index 0"), HasSubstr("expected device cpu:1 but got cpu:0")));
  EXPECT_THAT(error_of([&] {
                autograd::grad({x.sum(), x * 2}, {x}, {Tensor(), ones({3})});
              }),
              AllOf(HasSubstr("invalid gradient at index 1"), HasSubstr("expected device cpu:1 but got cpu;")));
}

TEST_F(QueuedDevice, AGradientOfOneNumberGoesToItsTarget) {
  const Tensor x = full({3}, 2.0F, options_on(1)).requires_grad_();
  (x * x).sum().backward(full({}, 10.0F));
  EXPECT_EQ(x.grad().cpu()[0].item<float>(), 40.0F);

  // A number on the host that is used on a device, and one of a device that is used on another.
  const Tensor factor = full({}, 3.0F).requires_grad_(), there = full({}, 3.0F, options_on(0)).requires_grad_();
  for (const bool again : {false, true}) {
    const Tensor g = autograd::grad({(x * factor * factor).sum()}, {factor}, {}, std::nullopt, again)[0];
    EXPECT_EQ(g.device(), Device());
    EXPECT_EQ(g.item<float>(), 36.0F);
    if (again) {
      EXPECT_EQ(autograd::grad({g}, {factor})[0].item<float>(), 12.0F);
    }
  }
  Astray::apply(there, 1).backward();
  EXPECT_EQ(there.grad().device(), on(0));
  EXPECT_EQ(there.grad().item<float>(), 2.0F);
}

}  // namespace athanor
