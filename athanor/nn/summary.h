#pragma once
/// A table of a model: its layers with their parameters and, after a run, the shapes of their results.

#include <functional>
#include <memory>
#include <string>

#include "athanor/nn/module.h"

namespace athanor::nn {

/// One line per module with its path, class and own parameters, then the totals: parameters, those that train, buffers,
/// bytes. A parameter that is shared counts where it is met first. With `run`, which should call the model once, also
/// the shape of each module's result, of modules called by their holders (`fc(x)`), as hooks are; gradients are off
/// while it runs. `model` must be held by a shared_ptr.
std::string summary(const std::shared_ptr<Module>& model, const std::function<void()>& run = nullptr);

}  // namespace athanor::nn
