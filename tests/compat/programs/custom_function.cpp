// Functions of one's own with their gradients, hooks, gradients of gradients, and what autograd's switches do.
#include "values.h"

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

namespace {

/// x weightᵀ, with an optional bias.
class LinearFunction : public Function<LinearFunction> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor input, torch::Tensor weight,
                               torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({input, weight, bias});
    auto output = input.mm(weight.t());
    if (bias.defined()) output += bias.unsqueeze(0).expand_as(output);
    return output;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto input = saved[0], weight = saved[1], bias = saved[2], grad_output = grad_outputs[0];
    auto grad_bias = torch::Tensor();
    if (bias.defined()) grad_bias = grad_output.sum(0);
    return {grad_output.mm(weight), grad_output.t().mm(input), grad_bias};
  }
};

class MulConstant : public Function<MulConstant> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor tensor, double constant) {
    ctx->saved_data["constant"] = constant;
    return tensor * constant;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    return {grad_outputs[0] * ctx->saved_data["constant"].toDouble(), torch::Tensor()};
  }
};

/// Keeps what is positive; gives back the places as well, which have no gradient.
class Positive : public Function<Positive> {
 public:
  static variable_list forward(AutogradContext* ctx, Variable x) {
    Variable mask = x > 0;
    ctx->save_for_backward({mask});
    ctx->mark_non_differentiable({mask});
    return {x * mask, mask};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    return {grad_outputs[0] * ctx->get_saved_variables()[0]};
  }
};

}  // namespace

int main() {
  auto x = wave({2, 3}).requires_grad_();
  auto weight = wave({4, 3}, 1).requires_grad_();
  auto bias = wave({4}, 2).requires_grad_();
  auto y = LinearFunction::apply(x, weight, bias);
  show("y", y);
  y.square().sum().backward();
  show("x.grad", x.grad());
  show("weight.grad", weight.grad());
  show("bias.grad", bias.grad());

  auto scaled = MulConstant::apply(x, 5.5);
  auto parts = Positive::apply(scaled);
  std::printf("%d %d\n", parts[0].requires_grad(), parts[1].requires_grad());
  auto gradients = torch::autograd::grad({parts[0].sum()}, {x});
  show("positive", gradients[0]);

  // Gradients of gradients: the penalty of a critic.
  auto model = torch::nn::Linear(4, 3);
  fill(*model);
  auto input = wave({3, 4}, 0.5).requires_grad_(true);
  auto output = model(input);
  auto loss = torch::nn::MSELoss()(output, wave({3, 3}, 1.5));
  auto grad_outputs = torch::ones_like(output);
  auto gradient = torch::autograd::grad({output.sigmoid()}, {input}, /*grad_outputs=*/{grad_outputs},
                                        /*retain_graph=*/true, /*create_graph=*/true)[0];
  auto gradient_penalty = torch::pow((gradient.norm(2, /*dim=*/1) - 1), 2).mean();
  auto combined_loss = loss + gradient_penalty;
  combined_loss.backward();
  show("combined", combined_loss.item<double>());
  show("input.grad", input.grad());
  show("model.weight.grad", model->weight.grad());

  auto v = torch::zeros({3}).requires_grad_();
  v.register_hook([](torch::Tensor grad) { return grad * 2; });
  v.backward(torch::tensor({1., 2., 3.}, torch::kFloat));
  show("hooked", v.grad());

  {
    torch::NoGradGuard no_grad;
    std::printf("%d\n", (x * 2).requires_grad());
  }
  auto detached = (x * 2).detach();
  std::printf("%d %s\n", detached.requires_grad(), x.exp().grad_fn()->name().c_str());
  try {
    auto z = x * x;
    auto sum = z.sum();
    sum.backward();
    sum.backward();
    std::printf("no error\n");
  } catch (const c10::Error& e) {
    std::printf("%d\n", std::string(e.what()).find("backward through the graph a second time") != std::string::npos);
  }
}
