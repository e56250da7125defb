"""Calls of torch.nn that test_nn_parity.py has both libraries carry out: python nn_cases.py athanor|torch OUT.

Everything is deterministic: inputs and parameters come from one little generator, never from the library's.
"""

from __future__ import annotations

import pickle
import sys
import warnings

# Layers: the expression that makes one, then its inputs: shapes of floats, or expressions in quotes.
LAYERS = [
    ("Linear(5, 4)", (3, 5)),
    ("Linear(5, 4, bias=False)", (2, 3, 5)),
    ("Linear(5, 4)", (5,)),
    ("Bilinear(3, 4, 5)", (2, 3), (2, 4)),
    ("Bilinear(3, 4, 5, bias=False)", (2, 6, 3), (2, 6, 4)),
    ("Identity(54, unused=1)", (2, 3)),
    ("Flatten()", (2, 3, 4)),
    ("Flatten(0, 1)", (2, 3, 4)),
    ("Unflatten(1, (2, -1))", (2, 6, 3)),
    ("Conv1d(4, 6, 3)", (2, 4, 9)),
    ("Conv1d(4, 6, 3, padding=1, stride=2, groups=2)", (4, 9)),
    ("Conv2d(3, 8, 3)", (2, 3, 8, 8)),
    ("Conv2d(3, 8, kernel_size=(3, 5), stride=(2, 1), padding=(4, 2), dilation=(3, 1))", (2, 3, 12, 10)),
    ("Conv2d(4, 8, 3, padding='same', bias=False)", (2, 4, 7, 6)),
    ("Conv2d(4, 8, 4, padding='same')", (4, 7, 6)),
    ("Conv2d(4, 8, 3, padding='valid', groups=4)", (2, 4, 7, 6)),
    ("Conv2d(2, 3, 3, padding=1, padding_mode='reflect')", (2, 2, 6, 5)),
    ("Conv2d(2, 3, 3, padding=(1, 2), padding_mode='circular')", (2, 2, 6, 5)),
    ("Conv2d(2, 3, 4, padding='same', padding_mode='replicate')", (2, 2, 6, 5)),
    ("Conv3d(2, 3, 2)", (1, 2, 4, 5, 6)),
    ("ConvTranspose1d(3, 4, 3, stride=2)", (2, 3, 5)),
    ("ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)", (2, 3, 5, 4)),
    ("ConvTranspose2d(4, 4, 3, stride=2, groups=2, bias=False)", (2, 4, 5, 4), "[12, 10]"),
    ("ConvTranspose3d(2, 3, 2, dilation=2)", (1, 2, 3, 3, 3)),
    ("MaxPool1d(3, stride=2)", (2, 3, 9)),
    ("MaxPool2d(2)", (2, 3, 8, 7)),
    ("MaxPool2d((3, 2), stride=(2, 1), padding=1, ceil_mode=True)", (3, 8, 7)),
    ("MaxPool2d(2, return_indices=True)", (2, 3, 8, 8)),
    ("MaxPool3d(2, dilation=1)", (2, 2, 4, 4, 4)),
    ("AvgPool1d(3, stride=2, padding=1)", (2, 3, 9)),
    ("AvgPool2d(2)", (2, 3, 8, 8)),
    ("AvgPool2d(3, stride=2, padding=1, count_include_pad=False, divisor_override=5)", (2, 3, 8, 8)),
    ("AvgPool3d(2)", (2, 2, 4, 4, 4)),
    ("LPPool1d(2, 3)", (2, 3, 9)),
    ("LPPool2d(2, (2, 3), stride=2)", (2, 3, 8, 8)),
    ("LPPool3d(2, 2)", (2, 2, 4, 4, 4)),
    ("FractionalMaxPool2d(2, output_size=(3, 4), _random_samples=uniform(2, 3, 2))", (2, 3, 8, 9)),
    ("FractionalMaxPool2d(3, output_ratio=0.5, _random_samples=uniform(2, 3, 2))", (2, 3, 8, 9)),
    ("AdaptiveAvgPool1d(4)", (2, 3, 9)),
    ("AdaptiveAvgPool2d((None, 3))", (2, 3, 8, 7)),
    ("AdaptiveAvgPool2d(1)", (3, 8, 7)),
    ("AdaptiveAvgPool3d((2, 3, None))", (2, 2, 4, 5, 6)),
    ("AdaptiveMaxPool1d(4)", (2, 3, 9)),
    ("AdaptiveMaxPool2d((3, 2), return_indices=True)", (2, 3, 8, 7)),
    ("AdaptiveMaxPool3d(2)", (2, 2, 4, 5, 6)),
    ("MaxUnpool2d(2)", (2, 3, 3, 3), "pool_places(2, 3, 3, 3)"),
    ("MaxUnpool2d(2, stride=2)", (2, 3, 3, 3), "pool_places(2, 3, 3, 3)", "[7, 6]"),
    ("MaxUnpool1d(2)", (2, 3, 3), "pool_places(2, 3, 3)"),
    ("BatchNorm1d(4)", (5, 4)),
    ("BatchNorm1d(4, momentum=None)", (5, 4, 3)),
    ("BatchNorm2d(3, eps=0.001, momentum=0.2)", (4, 3, 5, 4)),
    ("BatchNorm2d(3, affine=False)", (4, 3, 5, 4)),
    ("BatchNorm2d(3, track_running_stats=False)", (4, 3, 5, 4)),
    ("BatchNorm2d(3).eval()", (4, 3, 5, 4)),
    ("BatchNorm3d(2)", (2, 2, 3, 4, 3)),
    ("InstanceNorm1d(4)", (2, 4, 6)),
    ("InstanceNorm2d(3, affine=True, track_running_stats=True)", (2, 3, 5, 4)),
    ("InstanceNorm2d(3, affine=True, track_running_stats=True).eval()", (2, 3, 5, 4)),
    ("InstanceNorm3d(2)", (2, 3, 4, 3)),
    ("LayerNorm(6)", (2, 3, 6)),
    ("LayerNorm([3, 6], eps=0.01, bias=False)", (2, 3, 6)),
    ("LayerNorm(6, elementwise_affine=False)", (2, 6)),
    ("RMSNorm(6)", (2, 3, 6)),
    ("RMSNorm((3, 6), eps=0.01)", (2, 3, 6)),
    ("GroupNorm(2, 6)", (3, 6, 4)),
    ("GroupNorm(3, 6, affine=False)", (3, 6, 4, 2)),
    ("LocalResponseNorm(3, alpha=0.1)", (2, 5, 4, 3)),
    ("LocalResponseNorm(2)", (2, 5, 4)),
    ("CrossMapLRN2d(3, 0.5)", (2, 6, 3, 2)),
    ("Threshold(0.1, 20)", (3, 4)),
    ("ReLU()", (3, 4)),
    ("ReLU(inplace=True)", "leafless(3, 4)"),
    ("RReLU(0.1, 0.3).eval()", (3, 4)),
    ("Hardtanh(-0.5, 0.7)", (3, 4)),
    ("ReLU6()", (3, 4)),
    ("Sigmoid()", (3, 4)),
    ("Hardsigmoid()", (3, 4)),
    ("Tanh()", (3, 4)),
    ("SiLU()", (3, 4)),
    ("Mish()", (3, 4)),
    ("Hardswish()", (3, 4)),
    ("ELU(alpha=0.7)", (3, 4)),
    ("CELU(alpha=0.7)", (3, 4)),
    ("SELU()", (3, 4)),
    ("GLU()", (3, 4)),
    ("GLU(0)", (4, 3)),
    ("GELU()", (3, 4)),
    ("GELU('tanh')", (3, 4)),
    ("Hardshrink(0.3)", (3, 4)),
    ("Softshrink(0.3)", (3, 4)),
    ("LeakyReLU(0.2)", (3, 4)),
    ("LogSigmoid()", (3, 4)),
    ("Softplus(beta=2, threshold=1)", (3, 4)),
    ("PReLU()", (3, 4)),
    ("PReLU(4, init=0.1)", (3, 4, 2)),
    ("Softsign()", (3, 4)),
    ("Tanhshrink()", (3, 4)),
    ("Softmin(dim=1)", (3, 4)),
    ("Softmax(dim=1)", (3, 4)),
    ("Softmax()", (3, 4)),
    ("Softmax2d()", (2, 3, 2, 2)),
    ("LogSoftmax(dim=0)", (3, 4)),
    ("Dropout(0.4).eval()", (3, 4)),
    ("Dropout(0.0)", (3, 4)),
    ("Dropout1d().eval()", (3, 4, 2)),
    ("Dropout2d(1.0)", (2, 3, 4, 2)),
    ("Dropout3d().eval()", (2, 3, 4, 2, 2)),
    ("AlphaDropout().eval()", (3, 4)),
    ("FeatureAlphaDropout().eval()", (3, 4)),
    ("ZeroPad1d(2)", (2, 3, 4)),
    ("ZeroPad2d((1, 2, 0, 3))", (2, 3, 4, 4)),
    ("ZeroPad3d(1)", (2, 3, 2, 2, 2)),
    ("ConstantPad1d((1, 2), 3.5)", (2, 3, 4)),
    ("ConstantPad2d(-1, 3.5)", (2, 3, 4, 4)),
    ("ConstantPad3d(1, 0.5)", (3, 2, 2, 2)),
    ("ReflectionPad1d(2)", (2, 3, 4)),
    ("ReflectionPad2d((1, 2, 1, 0))", (3, 4, 4)),
    ("ReflectionPad3d(1)", (2, 3, 3, 3, 3)),
    ("ReplicationPad1d(2)", (3, 4)),
    ("ReplicationPad2d(2)", (2, 3, 4, 4)),
    ("ReplicationPad3d((1, 0, 2, 1, 0, 1))", (2, 3, 3, 3, 3)),
    ("CircularPad1d(2)", (2, 3, 4)),
    ("CircularPad2d((1, 2, 1, 0))", (2, 3, 4, 4)),
    ("CircularPad3d(1)", (2, 3, 3, 3, 3)),
    ("Upsample(scale_factor=2)", (2, 3, 4, 4)),
    ("Upsample(size=(5, 7), mode='bilinear', align_corners=True)", (2, 3, 4, 4)),
    ("Upsample(scale_factor=(1.5, 2.3), mode='bicubic')", (2, 3, 4, 4)),
    ("Upsample(scale_factor=1.7, mode='linear', recompute_scale_factor=True)", (2, 3, 7)),
    ("Upsample(size=5, mode='trilinear')", (1, 2, 3, 3, 3)),
    ("Upsample(size=9, mode='nearest-exact')", (2, 3, 4)),
    ("UpsamplingNearest2d(scale_factor=3)", (1, 2, 3, 3)),
    ("UpsamplingBilinear2d(size=5)", (1, 2, 3, 3)),
    ("PixelShuffle(2)", (1, 8, 2, 3)),
    ("PixelUnshuffle(2)", (1, 2, 4, 6)),
    ("ChannelShuffle(2)", (1, 6, 2, 3)),
    ("Fold(output_size=(4, 5), kernel_size=(2, 2))", (2, 12, 12)),
    ("Unfold(kernel_size=(2, 3), dilation=1, padding=1, stride=2)", (2, 3, 5, 6)),
    ("PairwiseDistance(p=2)", (3, 4), (3, 4)),
    ("PairwiseDistance(p=1, keepdim=True)", (3, 4), (3, 4)),
    ("CosineSimilarity(dim=1, eps=1e-6)", (3, 4), (3, 4)),
    ("Embedding(10, 3)", "integers(10, 2, 4)"),
    ("Embedding(10, 3, padding_idx=0)", "integers(10, 2, 4)"),
    ("Embedding(10, 3, max_norm=0.7, norm_type=1.0)", "integers(10, 2, 4)"),
    ("Embedding(10, 3, scale_grad_by_freq=True)", "integers(3, 2, 4)"),
    ("Embedding.from_pretrained(floats(4, 3))", "integers(4, 5)"),
    ("EmbeddingBag(10, 3)", "integers(10, 2, 4)"),
    ("EmbeddingBag(10, 3, mode='sum', include_last_offset=True)", "integers(10, 6)", "numbers([0, 2, 6])"),
    ("EmbeddingBag(10, 3, mode='sum')", "integers(10, 6)", "numbers([0, 2])", (6,)),
    ("EmbeddingBag(10, 3, mode='max', padding_idx=2)", "integers(10, 6)", "numbers([0, 2, 2])"),
    ("RNN(4, 3)", (5, 2, 4)),
    ("RNN(4, 3, 2, nonlinearity='relu', batch_first=True)", (2, 5, 4)),
    ("RNN(4, 3, 2, 'relu', False)", (5, 4), (2, 3)),
    ("LSTM(4, 3)", (5, 2, 4)),
    ("LSTM(4, 3, num_layers=2, bidirectional=True)", (5, 2, 4), "(floats(4, 2, 3), floats(4, 2, 3))"),
    ("LSTM(4, 3, proj_size=2, batch_first=True)", (2, 5, 4)),
    ("LSTM(4, 3, bias=False)", (5, 4)),
    ("LSTM(4, 3)", "rnn.pack_padded_sequence(floats(5, 2, 4), [3, 5], enforce_sorted=False)"),
    ("GRU(4, 3, num_layers=2, batch_first=True, bidirectional=True)", (2, 5, 4)),
    ("GRU(4, 3)", (5, 2, 4), (1, 2, 3)),
    ("GRU(4, 3)", "rnn.pack_sequence([floats(4, 4), floats(2, 4)])"),
    ("RNNCell(4, 3)", (2, 4)),
    ("RNNCell(4, 3, nonlinearity='relu', bias=False)", (2, 4), (2, 3)),
    ("LSTMCell(4, 3)", (2, 4), "(floats(2, 3), floats(2, 3))"),
    ("LSTMCell(4, 3)", (4,)),
    ("GRUCell(4, 3)", (2, 4), (2, 3)),
    ("MultiheadAttention(6, 2)", (4, 3, 6), (5, 3, 6), (5, 3, 6)),
    ("MultiheadAttention(6, 2, bias=False, add_bias_kv=True, add_zero_attn=True)", (4, 3, 6), (5, 3, 6), (5, 3, 6)),
    ("MultiheadAttention(6, 2, kdim=4, vdim=5, batch_first=True)", (3, 4, 6), (3, 5, 4), (3, 5, 5)),
    ("MultiheadAttention(6, 2)", (4, 6), (5, 6), (5, 6), "booleans(5)"),
    ("MultiheadAttention(6, 2)", (4, 3, 6), (4, 3, 6), (4, 3, 6), "None", "False", "causal(4)", "True", "True"),
    ("MultiheadAttention(6, 2)", (4, 2, 6), (5, 2, 6), (5, 2, 6), "booleans(2, 5)", "True", (4, 5), "False"),
    ("TransformerEncoderLayer(6, 2, 8, dropout=0.0)", (4, 3, 6)),
    ("TransformerEncoderLayer(6, 2, 8, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)", (3, 4, 6)),
    ("TransformerEncoderLayer(6, 2, 8, 0.0)", (4, 3, 6), "causal(4)", "None", "True"),
    ("TransformerDecoderLayer(6, 2, 8, dropout=0.0)", (4, 3, 6), (5, 3, 6)),
    ("TransformerDecoderLayer(6, 2, 8, dropout=0.0, norm_first=True)", (4, 3, 6), (5, 3, 6), "causal(4)"),
    ("TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0), 2, enable_nested_tensor=False)", (4, 3, 6)),
    ("TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, 0.0), 2, nn.LayerNorm(6))", (4, 3, 6), (5, 3, 6)),
    ("Transformer(6, 2, 1, 2, 8, dropout=0.0)", (5, 3, 6), (4, 3, 6), "None", "causal(4)"),
    ("AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12], div_value=2.0)", (6, 8), "numbers([0, 4, 5, 11, 12, 19])"),
    ("AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12], div_value=2.0, head_bias=True)", (8,), "numbers(13)"),
    ("L1Loss()", (3, 4), (3, 4)),
    ("MSELoss(reduction='sum')", (3, 4), (3, 4)),
    ("MSELoss(reduction='none')", (3, 4), (3, 4)),
    ("SmoothL1Loss(beta=0.5)", (3, 4), (3, 4)),
    ("SmoothL1Loss(beta=0.0)", (3, 4), (3, 4)),
    ("HuberLoss(delta=0.3)", (3, 4), (3, 4)),
    ("NLLLoss()", (3, 4), "numbers([1, 0, 3])"),
    ("NLLLoss(weight=uniform(4), reduction='sum', ignore_index=1)", (3, 4, 2), "integers(4, 3, 2)"),
    ("CrossEntropyLoss()", (3, 4), "numbers([1, 0, 3])"),
    ("CrossEntropyLoss(weight=uniform(4), label_smoothing=0.1)", (3, 4, 2), "integers(4, 3, 2)"),
    ("CrossEntropyLoss(reduction='none')", (3, 4), "torch.softmax(floats(3, 4), 1)"),
    ("CrossEntropyLoss()", (4,), "numbers(2)"),
    ("KLDivLoss(reduction='batchmean')", (3, 4), "torch.softmax(floats(3, 4), 1)"),
    ("KLDivLoss(reduction='sum', log_target=True)", (3, 4), (3, 4)),
    ("BCELoss()", "uniform(3, 4)", "uniform(3, 4)"),
    ("BCELoss(weight=uniform(4))", "uniform(3, 4)", "uniform(3, 4)"),
    ("BCEWithLogitsLoss(pos_weight=uniform(4))", (3, 4), "uniform(3, 4)"),
    ("PoissonNLLLoss()", (3, 4), "uniform(3, 4)"),
    ("PoissonNLLLoss(log_input=False, full=True)", "uniform(3, 4)", "uniform(3, 4) * 4"),
    ("GaussianNLLLoss()", (3, 4), (3, 4), "uniform(3, 4)"),
    ("GaussianNLLLoss(full=True)", (3, 4), (3, 4), "uniform(3, 1)"),
    ("HingeEmbeddingLoss(margin=0.5)", (3, 4), "signs(3, 4)"),
    ("SoftMarginLoss()", (3, 4), "signs(3, 4)"),
    ("MultiLabelMarginLoss()", (2, 4), "numbers([[3, 0, -1, 1], [1, -1, 0, 2]])"),
    ("MultiLabelSoftMarginLoss(weight=uniform(4))", (2, 4), "uniform(2, 4)"),
    ("CosineEmbeddingLoss(margin=0.1)", (3, 4), (3, 4), "signs(3)"),
    ("MarginRankingLoss(margin=0.1)", (3,), (3,), "signs(3)"),
    ("MultiMarginLoss()", (3, 4), "numbers([1, 0, 3])"),
    ("MultiMarginLoss(p=2, margin=0.5, weight=uniform(4))", (3, 4), "numbers([1, 0, 3])"),
    ("TripletMarginLoss()", (3, 4), (3, 4), (3, 4)),
    ("TripletMarginLoss(margin=0.5, p=1, swap=True)", (3, 4), (3, 4), (3, 4)),
    ("TripletMarginWithDistanceLoss()", (3, 4), (3, 4), (3, 4)),
    (
        "CTCLoss()",
        "floats(6, 2, 5).log_softmax(2)",
        "numbers([[1, 2, 2], [3, 4, 1]])",
        "numbers([6, 5])",
        "numbers([3, 2])",
    ),
    ("CTCLoss(reduction='sum')", "floats(6, 2, 5).log_softmax(2)", "numbers([1, 2, 2, 3, 4])", "(6, 5)", "(3, 2)"),
    ("Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))", (2, 4)),
    ("utils.parametrizations.weight_norm(nn.Linear(4, 3))", (2, 4)),
    ("utils.parametrizations.weight_norm(nn.Conv1d(4, 3, 2), dim=None)", (2, 4, 5)),
    ("utils.weight_norm(nn.Linear(4, 3), dim=1)", (2, 4)),
    ("utils.fuse_conv_bn_eval(filled(nn.Conv2d(2, 3, 3)).eval(), filled(nn.BatchNorm2d(3)).eval())", (1, 2, 4, 4)),
    ("utils.fuse_linear_bn_eval(filled(nn.Linear(2, 3)).eval(), filled(nn.BatchNorm1d(3)).eval())", (5, 2)),
]

# Functions whose layers do not show all there is.
FUNCTIONS = [
    "F.softmax(floats(3, 4), dim=0, dtype=torch.float64)",
    "F.log_softmax(floats(2, 3, 4), -1)",
    "F.hardtanh(floats(3, 4), min_val=-0.2, max_val=0.1)",
    "F.threshold(floats(3, 4), 0.1, value=9)",
    "F.dropout(floats(3, 4), 0.5, training=False)",
    "F.dropout(floats(3, 4), p=1.0)",
    "F.interpolate(floats(1, 2, 4, 4), scale_factor=0.5, mode='area')",
    "F.interpolate(floats(1, 2, 6, 6), size=3, mode='bilinear', antialias=True)",
    "F.interpolate(floats(1, 2, 6), scale_factor=[1.5])",
    "F.upsample(floats(1, 2, 3, 3), scale_factor=2)",
    "F.grid_sample(floats(1, 2, 4, 4), floats(1, 3, 3, 2), align_corners=False)",
    "F.grid_sample(floats(1, 2, 4, 4), floats(1, 3, 3, 2) * 2, 'nearest', 'border', True)",
    "F.grid_sample(floats(1, 2, 4, 4), floats(1, 3, 3, 2) * 2, mode='bicubic', padding_mode='reflection')",
    "F.affine_grid(floats(2, 2, 3), [2, 3, 4, 5], align_corners=True)",
    "F.affine_grid(floats(1, 3, 4), torch.Size([1, 1, 2, 3, 4]), align_corners=False)",
    "F.normalize(floats(3, 4))",
    "F.normalize(floats(3, 4), p=1, dim=0)",
    "F.pad(floats(2, 3), (1, 2), value=7)",
    "F.pad(floats(2, 3), (1, 2, 3, 4))",
    "F.one_hot(integers(5, 2, 3), num_classes=6)",
    "F.embedding(integers(4, 2, 3), floats(4, 2), -1)",
    "F.pdist(floats(4, 3))",
    "F.linear(floats(2, 3), floats(4, 3), floats(4))",
    "F.linear(floats(2, 3), floats(3))",
    "F.batch_norm(floats(3, 2, 4), None, None, training=True)",
    "F.layer_norm(floats(2, 3, 4), (3, 4))",
    "F.group_norm(floats(2, 4, 3), 2, weight=floats(4), bias=floats(4))",
    "F.scaled_dot_product_attention(floats(2, 3, 4), floats(2, 5, 4), floats(2, 5, 4))",
    "F.scaled_dot_product_attention(floats(2, 3, 4), floats(2, 3, 4), floats(2, 3, 4), is_causal=True, scale=0.3)",
    "F.mse_loss(floats(3, 4), floats(3, 4), weight=uniform(3, 4))",
    "F.mse_loss(floats(3, 4), floats(3, 1))",
    "F.l1_loss(floats(3, 4), floats(3, 4), size_average=False)",
    "F.cross_entropy(floats(3, 4), numbers([0, -100, 2]), reduce=False)",
    "F.nll_loss(floats(3, 4), numbers([0, 1, 2]), reduction='mean')",
    "F.kl_div(floats(3, 4), uniform(3, 4), reduction='mean')",
    "F.binary_cross_entropy_with_logits(floats(3), uniform(3), weight=uniform(3))",
    "F.gaussian_nll_loss(floats(3, 4), floats(3, 4), 0.5)",
    "F.triplet_margin_with_distance_loss(floats(3, 4), floats(3, 4), floats(3, 4), distance_function=lambda a, b: "
    "(a - b).abs().sum(1), swap=True, reduction='none')",
    "F.max_pool2d(floats(1, 1, 6, 6), 2, return_indices=True)",
    "F.adaptive_max_pool1d(floats(1, 2, 6), 3, True)",
    "F.max_unpool2d(*F.max_pool2d(floats(1, 1, 6, 6), 2, return_indices=True), 2)",
    "F.lp_pool2d(floats(1, 1, 6, 6).abs(), 3.0, 2)",
    "F.unfold(floats(1, 2, 4, 4), 2)",
    "F.fold(floats(1, 8, 9), 4, 2)",
    "F.gelu(floats(3), approximate='tanh')",
    "F.softplus(floats(3), 2, 0.1)",
    "F.logsigmoid(floats(3))",
    "F.relu_(floats(3))",
    "F.leaky_relu_(floats(3), 0.3)",
    "F.conv2d(floats(1, 2, 5, 5), floats(3, 2, 2, 2), padding='same', dilation=2)",
    "F.conv1d(floats(2, 5), floats(3, 2, 2), floats(3), stride=(2,))",
    "F.conv_transpose1d(floats(1, 2, 5), floats(2, 3, 2), stride=2)",
    "F.cosine_similarity(floats(3, 4), floats(3, 4))",
    "F.pairwise_distance(floats(3, 4), floats(3, 4), p=float('inf'))",
    "rnn.pad_sequence([floats(2, 3), floats(4, 3), floats(1, 3)])",
    "rnn.pad_sequence([floats(2), floats(4)], batch_first=True, padding_value=-1, padding_side='left')",
    "rnn.pad_packed_sequence(rnn.pack_padded_sequence(floats(2, 5, 3), numbers([2, 5]), True, False), total_length=7)",
    "rnn.pack_padded_sequence(floats(5, 3, 2), [5, 3, 3])",
    "rnn.unpack_sequence(rnn.pack_sequence([floats(1, 2), floats(3, 2)], enforce_sorted=False))",
    "rnn.unpad_sequence(floats(4, 2, 3), numbers([4, 2]))",
    "rnn.invert_permutation(numbers([2, 0, 1]))",
    "utils.parameters_to_vector(filled(nn.Linear(2, 3)).parameters())",
    "[nn.init.calculate_gain(n) for n in ('linear', 'tanh', 'relu', 'leaky_relu', 'selu', 'sigmoid', 'conv2d')]",
    "nn.init.calculate_gain('leaky_relu', 0.3)",
    "nn.init.eye_(floats(3, 4))",
    "nn.init.dirac_(floats(4, 2, 3), 2)",
    "nn.init.dirac_(floats(3, 3, 3, 4))",
    "nn.init.constant_(floats(3), 0.3)",
    "nn.init._calculate_fan_in_and_fan_out(floats(3, 4, 5))",
    "nn.Transformer.generate_square_subsequent_mask(3)",
    "list(filled(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))).state_dict())",
    "clipped(1.0)",
    "clipped(0.5, float('inf'))",
    "clipped(0.5, 1)",
    "clipped(100.0)",
]

# What must fail, and how.
ERRORS = [
    "nn.Linear(3, 4)(floats(2, 5))",
    "nn.Linear(3, 4)(integers(3, 2, 3))",
    "nn.Linear(3, 4, unknown=1)",
    "nn.Module(1)",
    "nn.Module(x=1)",
    "nn.Module()(1)",
    "nn.Module().missing",
    "nn.Conv2d(3, 4, 3, groups=2)",
    "nn.Conv2d(4, 3, 3, groups=2)",
    "nn.Conv2d(4, 3, 3, padding='half')",
    "nn.Conv2d(4, 3, 3, padding='same', stride=2)",
    "nn.Conv2d(4, 3, 3, padding_mode='mirror')",
    "nn.Conv2d(4, 3, 3)(floats(1, 3, 5, 5))",
    "nn.ConvTranspose2d(4, 3, 3, padding_mode='reflect')",
    "nn.ConvTranspose2d(4, 3, 3, stride=2)(floats(1, 4, 5, 5), output_size=[20, 20])",
    "nn.BatchNorm1d(3)(floats(1, 3))",
    "nn.BatchNorm2d(3)(floats(2, 3))",
    "nn.BatchNorm1d(3)(floats(2, 3, 4, 5))",
    "nn.InstanceNorm1d(3)(floats(2, 3, 1))",
    "nn.GroupNorm(2, 3)",
    "nn.LayerNorm(4)(floats(2, 3))",
    "nn.Dropout(1.5)",
    "F.dropout(floats(2), -0.1)",
    "nn.Hardtanh(1.0, -1.0)",
    "nn.Softmax2d()(floats(2, 3))",
    "nn.MSELoss(reduction='average')(floats(2), floats(2))",
    "nn.CrossEntropyLoss()(floats(2, 3), numbers([0, 1, 2]))",
    "nn.BCELoss()(uniform(2, 3), uniform(2, 2))",
    "nn.BCEWithLogitsLoss()(uniform(2, 3), uniform(2, 2))",
    "nn.MultiMarginLoss(p=3)",
    "nn.TripletMarginLoss(margin=0)",
    "nn.MarginRankingLoss()(floats(2), floats(2, 1), floats(2))",
    "nn.GaussianNLLLoss()(floats(2, 3), floats(2, 3), -uniform(2, 3))",
    "nn.Embedding(3, 2, padding_idx=3)",
    "nn.Embedding(3, 2)(integers(3, 2) + 5)",
    "nn.EmbeddingBag(3, 2)(integers(3, 2))",
    "nn.EmbeddingBag(3, 2, mode='product')(integers(3, 2, 2))",
    "nn.EmbeddingBag(3, 2)(integers(3, 2, 2), numbers([0]))",
    "nn.LSTM(3, 4)(floats(2, 3, 5))",
    "nn.LSTM(3, 4)(floats(3))",
    "nn.LSTM(3, 4, proj_size=4)",
    "nn.GRU(3, 4, proj_size=2)",
    "nn.GRU(3, 0)",
    "nn.RNN(3, 4, dropout=2)",
    "nn.RNN(3, 4, nonlinearity='sin')",
    "nn.GRU(3, 4)(floats(2, 3, 3), floats(1, 2, 4))",
    "nn.LSTMCell(3, 4)(floats(2, 4))",
    "nn.RNNCell(3, 4)(floats(1, 2, 3))",
    "nn.MultiheadAttention(5, 2)",
    "nn.MultiheadAttention(0, 2)",
    "nn.MultiheadAttention(4, 2)(floats(3, 2, 4), floats(3, 2, 4), floats(3, 2, 4), is_causal=True)",
    "nn.TransformerEncoderLayer(4, 2, activation='sin')",
    "nn.Transformer(4, 2)(floats(3, 2, 4), floats(3, 1, 4))",
    "nn.AdaptiveLogSoftmaxWithLoss(8, 20, [12, 5])",
    "nn.FractionalMaxPool2d(2)",
    "nn.FractionalMaxPool2d(2, output_size=3, output_ratio=0.5)",
    "nn.Unflatten(1, 3)",
    "F.interpolate(floats(1, 2, 4), size=2, scale_factor=2)",
    "F.interpolate(floats(1, 2, 4))",
    "F.interpolate(floats(1, 2, 4), size=2, mode='bilinear')",
    "F.interpolate(floats(1, 2, 4), size=2, mode='nearest', align_corners=True)",
    "F.grid_sample(floats(1, 2, 4, 4), floats(1, 3, 3, 2), mode='cubic')",
    "F.affine_grid(floats(2, 3), [1, 1, 2, 2])",
    "F.glu(floats(3))",
    "F.max_unpool2d(floats(1, 1, 2, 2), integers(4, 1, 1, 2, 2), 2, output_size=[9, 9])",
    "nn.Sequential(nn.ReLU())[1]",
    "nn.Sequential(1)",
    "nn.Sequential() + 1",
    "nn.ModuleList([nn.ReLU()])[2]",
    "nn.ModuleList(3)",
    "nn.ModuleDict({'a': 1})",
    "nn.ModuleDict({'a.b': nn.ReLU()})",
    "nn.ModuleDict({'': nn.ReLU()})",
    "nn.ModuleDict({'keys': nn.ReLU()})",
    "nn.ParameterList([floats(2)])()",
    "nn.ParameterDict({1: floats(2)})",
    "nn.Linear(2, 3).add_module('weight', nn.ReLU())",
    "nn.Linear(2, 3).add_module('a.b', nn.ReLU())",
    "nn.Linear(2, 3).add_module(3, nn.ReLU())",
    "nn.Linear(2, 3).register_parameter('weight.x', None)",
    "nn.Linear(2, 3).register_parameter('p', floats(2))",
    "nn.Linear(2, 3).register_parameter('in_features', None)",
    "nn.Linear(2, 3).register_buffer('b', [1])",
    "nn.Linear(2, 3).register_buffer('weight', floats(2))",
    "nn.Linear(2, 3).__setattr__('weight', floats(3, 2))",
    "nn.Linear(2, 3).__delattr__('nothing')",
    "nn.Linear(2, 3).get_submodule('a')",
    "nn.Linear(2, 3).get_submodule('in_features')",
    "nn.Linear(2, 3).get_parameter('in_features')",
    "nn.Linear(2, 3).get_buffer('weight')",
    "nn.Linear(2, 3).train('yes')",
    "nn.Linear(2, 3).to(torch.int64)",
    "nn.Linear(2, 3).load_state_dict(3)",
    "nn.Linear(2, 3).load_state_dict({'weight': floats(3, 2)})",
    "nn.Linear(2, 3).load_state_dict({'weight': floats(2, 2), 'bias': floats(3), 'more': floats(1)})",
    "nn.Linear(2, 3).load_state_dict({'weight': 3, 'bias': floats(3)})",
    "nn.Sequential(nn.Linear(2, 3)).load_state_dict({'0.weight': floats(3, 2), '1.weight': floats(2)})",
    "uninitialized().__setattr__('w', nn.Parameter(floats(2)))",
    "uninitialized().__setattr__('m', nn.ReLU())",
    "nn.Parameter([1.0])",
    "nn.init.xavier_uniform_(floats(3))",
    "nn.init.kaiming_normal_(floats(3, 2), mode='fan')",
    "nn.init.kaiming_normal_(floats(3, 2), nonlinearity='sin')",
    "nn.init.eye_(floats(3))",
    "nn.init.dirac_(floats(3, 2))",
    "nn.init.orthogonal_(floats(3))",
    "nn.init.sparse_(floats(3), 0.1)",
    "rnn.pack_padded_sequence(floats(5, 2, 3), [3, 5])",
    "rnn.pack_padded_sequence(floats(5, 2, 3), [5])",
    "rnn.pack_padded_sequence(floats(5, 2, 3), [5, 0])",
    "rnn.pad_packed_sequence(rnn.pack_padded_sequence(floats(5, 2, 3), [5, 2]), total_length=3)",
    "rnn.pad_sequence(3)",
    "utils.remove_weight_norm(nn.Linear(2, 3))",
    "utils.remove_spectral_norm(nn.Linear(2, 3))",
    "utils.spectral_norm(nn.Linear(2, 3), n_power_iterations=0)",
    "utils.parametrize.remove_parametrizations(nn.Linear(2, 3), 'weight')",
    "utils.parametrize.register_parametrization(nn.Linear(2, 3), 'nothing', nn.ReLU())",
    "utils.parametrize.register_parametrization(nn.Linear(2, 3), 'weight', nn.Flatten(0))",
    "utils.vector_to_parameters(3, [])",
    "utils.clip_grad_norm_(broken_gradient(), 1.0, error_if_nonfinite=True)",
]


class Numbers:
    """Values that are the same on every machine: a linear congruential generator."""

    def __init__(self, seed: int) -> None:
        self.state = seed * 2654435761 % 2**32

    def next(self) -> float:
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return (self.state >> 8) / 2**24

    def list(self, shape: tuple, draw: object) -> object:
        return [self.list(shape[1:], draw) for _ in range(shape[0])] if shape else draw(self.next())


def namespace(torch: object, dtype: object, seed: int) -> dict:
    """What the expressions see."""
    nn = torch.nn
    numbers = Numbers(seed)

    def tensor(values: object, shape: tuple, kind: object) -> object:
        return torch.tensor(values, dtype=kind).reshape(shape)

    def floats(*shape: int) -> object:
        return tensor(numbers.list(shape, lambda x: 2 * x - 1), shape, dtype)

    def uniform(*shape: int) -> object:
        return tensor(numbers.list(shape, lambda x: 0.1 + 0.8 * x), shape, dtype)

    def signs(*shape: int) -> object:
        return tensor(numbers.list(shape, lambda x: 1.0 if x < 0.5 else -1.0), shape, dtype)

    def integers(high: int, *shape: int) -> object:
        return tensor(numbers.list(shape, lambda x: int(x * high)), shape, torch.int64)

    def booleans(*shape: int) -> object:
        values = integers(3, *shape) == 0
        values.select(-1, 0).fill_(False)
        return values

    def filled(module: object) -> object:
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(floats(*p.shape) * 0.5)
            for name, b in module.named_buffers():
                if b.is_floating_point() and "running" in name:
                    b.copy_(uniform(*b.shape))
        return module

    def leafless(*shape: int) -> object:
        return floats(*shape).requires_grad_() * 1

    def clipped(*args: object) -> object:
        ps = [nn.Parameter(floats(3, 4)), nn.Parameter(floats(2)), nn.Parameter(floats(1))]
        for p in ps[:2]:
            p.grad = floats(*p.shape)
        return nn.utils.clip_grad_norm_(ps, *args), [p.grad for p in ps]

    def broken_gradient() -> object:
        p = nn.Parameter(floats(2))
        p.grad = torch.tensor([1.0, float("nan")], dtype=dtype)
        return [p]

    return {
        "torch": torch, "nn": nn, "F": nn.functional, "utils": nn.utils, "rnn": nn.utils.rnn, "floats": floats,
        "uniform": uniform, "signs": signs, "integers": integers, "booleans": booleans, "filled": filled,
        "leafless": leafless, "clipped": clipped, "broken_gradient": broken_gradient,
        "numbers": lambda values: torch.tensor(values, dtype=torch.int64),
        "pool_places": lambda *shape: (torch.arange(shape[-1]) * 2).expand(*shape).contiguous(),
        "causal": lambda n: nn.Transformer.generate_square_subsequent_mask(n, dtype=dtype),
        "uninitialized": lambda: nn.Module.__new__(nn.Module),
    }  # fmt: skip


def plain(torch: object, value: object) -> object:
    """A result as nested tuples and lists of numbers."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), tuple(value.shape), value.detach().flatten().tolist())
    if isinstance(value, (list, tuple)):
        return [plain(torch, v) for v in value]
    return value


def floating(torch: object, value: object) -> list:
    """The tensors of a result that have gradients."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in floating(torch, v)]
    return []


def run_layer(torch: object, dtype: object, seed: int, expression: str, specs: tuple) -> dict:
    """Result, gradients of inputs and parameters, and state of one call."""
    names = namespace(torch, dtype, seed)
    module = eval("nn." + expression, names).to(dtype)
    out = {"repr": repr(module), "keys": list(module.state_dict())}
    names["filled"](module)
    inputs = [names["floats"](*s) if isinstance(s, tuple) else eval(s, names) for s in specs]
    leaves = [
        t.requires_grad_()
        for t, s in zip(inputs, specs)
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.is_leaf and not str(s).startswith("signs")
    ]
    result = module(*inputs)
    out["result"] = plain(torch, result)
    parts = floating(torch, result)
    if parts:
        loss = sum((t * names["floats"](*t.shape)).sum() for t in parts)
        leaves += [p for p in module.parameters() if p.requires_grad]
        loss.backward()
        out["grads"] = [None if t.grad is None else plain(torch, t.grad) for t in leaves]
    out["state"] = [plain(torch, t) for t in module.state_dict().values()]
    return out


def run(torch: object) -> dict:
    """Everything, by kind and name; what raises has the class and the text of the exception in its place."""

    def attempt(call: object) -> object:
        try:
            return call()
        except Exception as error:  # noqa: BLE001
            return ("error", type(error).__name__, str(error))

    out: dict = {"layers": {}, "functions": {}, "errors": {}}
    for dtype in ("float64", "float32"):
        kind = getattr(torch, dtype)
        for seed, (expression, *specs) in enumerate(LAYERS):
            out["layers"][f"{dtype} {expression} {specs}"] = attempt(
                lambda: run_layer(torch, kind, seed, expression, tuple(specs))
            )
        for seed, expression in enumerate(FUNCTIONS):
            out["functions"][f"{dtype} {expression}"] = attempt(
                lambda: plain(torch, eval(expression, namespace(torch, kind, seed)))
            )
    for seed, expression in enumerate(ERRORS):
        out["errors"][expression] = attempt(
            lambda: type(eval(expression, namespace(torch, torch.float32, seed))).__name__
        )
    return out


if __name__ == "__main__":
    library = __import__(sys.argv[1])
    library.set_num_threads(1)  # nothing here is large, and threads that wait for each other are slow on a busy machine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = run(library)
    with open(sys.argv[2], "wb") as f:
        pickle.dump(results, f, protocol=4)
