#pragma once
/// Layers split over the devices of one process: each device has a part of the weights and computes with it, the parts
/// of the result are joined or added. They are made from the layer they stand for, and give its results and gradients.
///
///     nn::parallel::ColumnParallelLinear up(nn::Linear(512, 2048), SplitOptions().devices({cpu0, cpu1}));
///     nn::parallel::RowParallelLinear down(nn::Linear(2048, 512), SplitOptions().devices({cpu0, cpu1}));
///     Tensor y = down->forward_parts(gelu_parts(up->forward_parts(x)));  // nothing but x and y changes its device

#include <optional>
#include <vector>

#include "athanor/nn/attention.h"
#include "athanor/nn/embedding.h"
#include "athanor/nn/linear.h"
#include "athanor/nn/options.h"

namespace athanor::nn::parallel {

struct SplitOptions {
  ATHANOR_ARG(std::vector<Device>, devices);               ///< all_devices() if empty
  ATHANOR_ARG(std::vector<std::int64_t>, sizes);           ///< what each device gets; as equal as can be if empty
  ATHANOR_ARG(std::optional<Device>, output_device) = {};  ///< devices[0] if not given
};

// Constructors throw ValueError if a device is listed twice, or if sizes are not one positive number per device with
// the right sum. Inputs may be on any device. Parameters are named weight_0, weight_1, … and lie on the devices; the
// split layer has copies of the given one's, which stays as it is.

/// Linear with its outputs split; sizes count output features.
class ColumnParallelLinearImpl : public Module {
 public:
  explicit ColumnParallelLinearImpl(const Linear& whole, const SplitOptions& options = {});
  /// The whole result, on the output device.
  Tensor forward(const Tensor& input);
  /// Each device's features of the result, where they were computed.
  std::vector<Tensor> forward_parts(const Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  std::vector<Tensor> weights, biases;  ///< biases are undefined if the whole layer has none

 private:
  Device output_device_;
};
ATHANOR_MODULE(ColumnParallelLinear);

/// Linear with its inputs split; sizes count input features. Partial sums are added on the output device in the order
/// of the devices.
class RowParallelLinearImpl : public Module {
 public:
  explicit RowParallelLinearImpl(const Linear& whole, const SplitOptions& options = {});
  Tensor forward(const Tensor& input);
  /// Of an input whose features are split already, as ColumnParallelLinear leaves them. Throws ValueError if the parts
  /// do not have the features of the devices.
  Tensor forward_parts(const std::vector<Tensor>& parts);
  void pretty_print(std::ostream& stream) const override;

  std::vector<Tensor> weights;
  Tensor bias;  ///< on the output device

 private:
  Device output_device_;
};
ATHANOR_MODULE(RowParallelLinear);

/// Embedding with its rows split; sizes count rows. Not for tables with max_norm, scale_grad_by_freq or sparse.
class ParallelEmbeddingImpl : public Module {
 public:
  explicit ParallelEmbeddingImpl(const Embedding& whole, const SplitOptions& options = {});
  Tensor forward(const Tensor& indices);
  void pretty_print(std::ostream& stream) const override;

  std::vector<Tensor> weights;

 private:
  std::optional<std::int64_t> padding_idx_;
  Device output_device_;
};
ATHANOR_MODULE(ParallelEmbedding);

/// MultiheadAttention with its heads split; sizes count heads. Not for add_bias_kv or add_zero_attn.
class ParallelMultiheadAttentionImpl : public Module {
 public:
  explicit ParallelMultiheadAttentionImpl(const MultiheadAttention& whole, const SplitOptions& options = {});
  /// query (L, N, E), key (S, N, K), value (S, N, V), or batch first as the whole layer has it. attn_mask (L, S): bool,
  /// true where closed, or floating, added to the scores. is_causal masks what comes later, without attn_mask.
  /// key_padding_mask (N, S): bool, true where a key is ignored.
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask = {},
                 bool is_causal = false, const Tensor& key_padding_mask = {});
  void pretty_print(std::ostream& stream) const override;

  /// A device's heads.
  struct Heads {
    Tensor q, k, v;                 ///< (heads · head size, features)
    Tensor q_bias, k_bias, v_bias;  ///< undefined without bias
    Tensor out;                     ///< (E, heads · head size)
  };
  std::vector<Heads> heads;
  Tensor out_bias;  ///< on the output device

 private:
  Tensor of_heads(const Heads& part, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                  bool is_causal) const;
  std::int64_t head_dim_;
  double dropout_;
  bool batch_first_;
  Device output_device_;
};
ATHANOR_MODULE(ParallelMultiheadAttention);

}  // namespace athanor::nn::parallel
