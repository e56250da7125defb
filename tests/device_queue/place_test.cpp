// A kernel that fails after its call returned names the layer that called it.
#include <gmock/gmock.h>

#include "athanor/nn/nn.h"
#include "athanor/optim/algorithms.h"
#include "device_queue/queued_device.h"

namespace athanor::place_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

struct TextImpl : nn::Module {
  TextImpl() {
    embedding = register_module("embedding", nn::Embedding(4, 2));
    fc = register_module("fc", nn::Linear(2, 3));
  }
  Tensor forward(const Tensor& x) { return fc(embedding(x)); }
  nn::Embedding embedding{nullptr};
  nn::Linear fc{nullptr};
};
ATHANOR_MODULE(Text);

struct ModelImpl : nn::Module {
  ModelImpl() { text = register_module("text", Text()); }
  Tensor forward(const Tensor& x) { return text(x); }
  Text text{nullptr};
};
ATHANOR_MODULE(Model);

/// No row of the table has that number, which only the kernel finds.
Tensor bad_index(Device device) { return tensor({0, 9}, kLong).to(device); }

}  // namespace

TEST_F(QueuedDevice, AFailureNamesTheLayerWhoseCallItWas) {
  Model model;
  model->to(on(1));
  const Tensor index = bad_index(on(1));
  close();
  const Tensor result = model(index);  // returns: the kernel has not run
  latch_->count_down();
  EXPECT_THAT(error_of([&] { synchronize(on(1)); }),
              AllOf(HasSubstr("enqueued on cpu:1\nin text.embedding"), Not(HasSubstr("text.fc"))));
  EXPECT_THAT(error_of([&] { result.cpu(); }), HasSubstr("in text.embedding"));
}

TEST_F(QueuedDevice, AFailureOutsideOfLayersNamesNone) {
  Model model;
  model->to(on(1));
  model(tensor({0, 1}, kLong).to(on(1)));
  launch(failing_kernel, zeros({1}, options_on(1)));
  const std::string message = error_of([&] { synchronize(on(1)); });
  EXPECT_TRUE(message.ends_with("enqueued on cpu:1")) << message;
}

TEST_F(QueuedDevice, AFailureOfALayerOfNoModelNamesNone) {
  nn::Embedding alone(4, 2);
  alone->to(on(1));
  alone(bad_index(on(1)));
  const std::string message = error_of([&] { synchronize(on(1)); });
  EXPECT_TRUE(message.ends_with("enqueued on cpu:1")) << message;
}

TEST_F(QueuedDevice, AFailureOutlivesItsModel) {
  Tensor result;
  {
    Model model;
    model->to(on(1));
    const Tensor index = bad_index(on(1));
    close();
    result = model(index);
  }
  latch_->count_down();
  EXPECT_THAT(error_of([&] { synchronize(on(1)); }), HasSubstr("enqueued on cpu:1"));
}

}  // namespace athanor::place_test
