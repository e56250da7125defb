#pragma once
/// The two MNIST networks: PyTorch's example (`ConvNet`) and the distributed tutorial's (`TutorialNet`), with PyTorch's
/// parameter names, so that state files are interchangeable.

#include <string>

#include "athanor/nn/nn.h"

namespace athanor::models {

/// conv 1→32 3×3, conv 32→64 3×3, max pool 2, dropout 0.25, fc 9216→128, dropout 0.5, fc 128→10, log-softmax.
/// Takes [N, 1, 28, 28], returns log-probabilities [N, 10].
struct ConvNetImpl : nn::Cloneable<ConvNetImpl> {
  ConvNetImpl() { reset(); }
  void reset() override;
  Tensor forward(Tensor x);
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Dropout dropout1{nullptr}, dropout2{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
};
ATHANOR_MODULE(ConvNet);

/// conv 1→10 5×5, max pool 2, relu, conv 10→20 5×5, channel dropout, max pool 2, relu, fc 320→50, dropout, fc 50→10,
/// log-softmax.
struct TutorialNetImpl : nn::Cloneable<TutorialNetImpl> {
  TutorialNetImpl() { reset(); }
  void reset() override;
  Tensor forward(Tensor x);
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Dropout2d conv2_drop{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
};
ATHANOR_MODULE(TutorialNet);

}  // namespace athanor::models
