"""What modules print: PyTorch's own forms, recorded from torch 2.15."""

from __future__ import annotations

import unittest
import warnings
from collections import OrderedDict

import athanor as torch
from athanor import nn

REPRS = {
    "Linear(3, 4)": "Linear(in_features=3, out_features=4, bias=True)",
    "Linear(3, 4, bias=False)": "Linear(in_features=3, out_features=4, bias=False)",
    "Bilinear(2, 3, 4)": "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=True)",
    "Identity()": "Identity()",
    "Flatten()": "Flatten(start_dim=1, end_dim=-1)",
    "Unflatten(1, (2, 3))": "Unflatten(dim=1, unflattened_size=(2, 3))",
    "Conv1d(3, 4, 5)": "Conv1d(3, 4, kernel_size=(5,), stride=(1,))",
    "Conv2d(1, 32, 3, 1)": "Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1))",
    "Conv2d(4, 8, kernel_size=(3, 5), stride=(2, 1), padding=(4, 2), dilation=(3, 1), groups=2, bias=False)": (
        "Conv2d(4, 8, kernel_size=(3, 5), stride=(2, 1), padding=(4, 2), dilation=(3, 1), groups=2, " "bias=False)"
    ),
    "Conv2d(3, 4, 3, padding='same', padding_mode='reflect')": (
        "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=same, padding_mode=reflect)"
    ),
    "ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)": (
        "ConvTranspose2d(3, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1))"
    ),
    "MaxPool2d(2)": "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)",
    "MaxPool2d((3, 2), stride=(2, 1), padding=1)": (
        "MaxPool2d(kernel_size=(3, 2), stride=(2, 1), padding=1, dilation=1, ceil_mode=False)"
    ),
    "AvgPool1d(3)": "AvgPool1d(kernel_size=(3,), stride=(3,), padding=(0,))",
    "AvgPool2d(3, stride=2)": "AvgPool2d(kernel_size=3, stride=2, padding=0)",
    "LPPool2d(2, 3)": "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=False)",
    "AdaptiveAvgPool2d((1, 1))": "AdaptiveAvgPool2d(output_size=(1, 1))",
    "AdaptiveMaxPool2d((None, 7))": "AdaptiveMaxPool2d(output_size=(None, 7))",
    "FractionalMaxPool2d(3, output_size=(13, 12))": "FractionalMaxPool2d()",
    "MaxUnpool2d(2)": "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))",
    "BatchNorm2d(64)": "BatchNorm2d(64, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)",
    "BatchNorm1d(3, momentum=None, affine=False)": (
        "BatchNorm1d(3, eps=1e-05, momentum=None, affine=False, bias=False, track_running_stats=True)"
    ),
    "InstanceNorm2d(3)": (
        "InstanceNorm2d(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)"
    ),
    "LayerNorm([3, 4], eps=0.01)": "LayerNorm((3, 4), eps=0.01, elementwise_affine=True, bias=True)",
    "RMSNorm(8)": "RMSNorm((8,), eps=None, elementwise_affine=True)",
    "GroupNorm(3, 6)": "GroupNorm(3, 6, eps=1e-05, affine=True, bias=True)",
    "LocalResponseNorm(2)": "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)",
    "ReLU()": "ReLU()",
    "ReLU(inplace=True)": "ReLU(inplace=True)",
    "LeakyReLU(0.1)": "LeakyReLU(negative_slope=0.1)",
    "ELU(inplace=True)": "ELU(alpha=1.0, inplace=True)",
    "Hardtanh(-2, 2)": "Hardtanh(min_val=-2, max_val=2)",
    "ReLU6(True)": "ReLU6(inplace=True)",
    "GELU(approximate='tanh')": "GELU(approximate='tanh')",
    "Softplus()": "Softplus(beta=1.0, threshold=20.0)",
    "PReLU(3)": "PReLU(num_parameters=3)",
    "Softshrink()": "Softshrink(0.5)",
    "RReLU()": "RReLU(lower=0.125, upper=0.3333333333333333)",
    "Threshold(0.1, 20)": "Threshold(threshold=0.1, value=20)",
    "Softmax(dim=1)": "Softmax(dim=1)",
    "LogSoftmax(dim=None)": "LogSoftmax(dim=None)",
    "Sigmoid()": "Sigmoid()",
    "Dropout(0.25)": "Dropout(p=0.25, inplace=False)",
    "Dropout2d(p=0.5, inplace=True)": "Dropout2d(p=0.5, inplace=True)",
    "ZeroPad2d(1)": "ZeroPad2d((1, 1, 1, 1))",
    "ConstantPad1d((3, 1), 3.5)": "ConstantPad1d(padding=(3, 1), value=3.5)",
    "ReflectionPad2d((1, 1, 2, 0))": "ReflectionPad2d((1, 1, 2, 0))",
    "Upsample(scale_factor=2, mode='bilinear')": "Upsample(scale_factor=2.0, mode='bilinear')",
    "Upsample(size=(3, 4))": "Upsample(size=(3, 4), mode='nearest')",
    "PixelShuffle(3)": "PixelShuffle(upscale_factor=3)",
    "Fold((4, 5), (2, 2))": "Fold(output_size=(4, 5), kernel_size=(2, 2), dilation=1, padding=0, stride=1)",
    "Unfold(3)": "Unfold(kernel_size=3, dilation=1, padding=0, stride=1)",
    "CosineSimilarity()": "CosineSimilarity()",
    "Embedding(10, 3, padding_idx=0)": "Embedding(10, 3, padding_idx=0)",
    "EmbeddingBag(10, 3, mode='sum')": "EmbeddingBag(10, 3, mode='sum')",
    "RNN(10, 20, 2, nonlinearity='relu')": "RNN(10, 20, num_layers=2)",
    "LSTM(10, 20, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)": (
        "LSTM(10, 20, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)"
    ),
    "LSTM(10, 20, proj_size=5)": "LSTM(10, 20, proj_size=5)",
    "GRU(10, 20, bias=False)": "GRU(10, 20, bias=False)",
    "RNNCell(4, 3, nonlinearity='relu')": "RNNCell(4, 3, nonlinearity=relu)",
    "LSTMCell(4, 3, bias=False)": "LSTMCell(4, 3, bias=False)",
    "MultiheadAttention(8, 2)": (
        "MultiheadAttention(\n"
        "  (out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)\n"
        ")"
    ),
    "CrossEntropyLoss()": "CrossEntropyLoss()",
    "NLLLoss(reduction='sum')": "NLLLoss()",
    "MSELoss()": "MSELoss()",
    "BCEWithLogitsLoss()": "BCEWithLogitsLoss()",
    "TripletMarginWithDistanceLoss()": (
        "TripletMarginWithDistanceLoss(\n" "  (distance_function): PairwiseDistance()\n" ")"
    ),
    "Sequential()": "Sequential()",
    "Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))": (
        "Sequential(\n"
        "  (0): Conv2d(1, 20, kernel_size=(5, 5), stride=(1, 1))\n"
        "  (1): ReLU()\n"
        "  (2): Sequential(\n"
        "    (0): Flatten(start_dim=1, end_dim=-1)\n"
        "    (1): Linear(in_features=4, out_features=2, bias=True)\n"
        "  )\n"
        ")"
    ),
    "Sequential(OrderedDict([('conv1', nn.Conv2d(1, 20, 5)), ('relu1', nn.ReLU())]))": (
        "Sequential(\n" "  (conv1): Conv2d(1, 20, kernel_size=(5, 5), stride=(1, 1))\n" "  (relu1): ReLU()\n" ")"
    ),
    "ModuleList()": "ModuleList()",
    "ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)])": (
        "ModuleList(\n"
        "  (0-1): 2 x Linear(in_features=2, out_features=2, bias=True)\n"
        "  (2): ReLU()\n"
        "  (3): Linear(in_features=2, out_features=2, bias=True)\n"
        ")"
    ),
    "ModuleList([nn.Sequential(nn.Linear(2, 2)) for _ in range(3)])": (
        "ModuleList(\n"
        "  (0-2): 3 x Sequential(\n"
        "    (0): Linear(in_features=2, out_features=2, bias=True)\n"
        "  )\n"
        ")"
    ),
    "ModuleDict({'conv': nn.Conv2d(1, 2, 3), 'act': nn.ReLU()})": (
        "ModuleDict(\n" "  (conv): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))\n" "  (act): ReLU()\n" ")"
    ),
    "ParameterList([torch.ones(2, 3), torch.ones(())])": (
        "ParameterList(\n"
        "    (0): Parameter containing: [torch.float32 of size 2x3]\n"
        "    (1): Parameter containing: [torch.float32 of size ]\n"
        ")"
    ),
    "ParameterList([nn.Parameter(torch.ones(2)), 'text'])": (
        "ParameterList(\n"
        "    (0): Parameter containing: [torch.float32 of size 2]\n"
        "    (1): Object of type: str\n"
        ")"
    ),
    "ParameterDict({'a': torch.ones(2, 3)})": (
        "ParameterDict(  (a): Parameter containing: [torch.FloatTensor of size 2x3])"
    ),
    "ParameterDict({'a': torch.ones(2, 3), 'b': torch.ones(1)})": (
        "ParameterDict(\n"
        "    (a): Parameter containing: [torch.FloatTensor of size 2x3]\n"
        "    (b): Parameter containing: [torch.FloatTensor of size 1]\n"
        ")"
    ),
    "utils.parametrizations.weight_norm(nn.Linear(2, 3))": (
        "ParametrizedLinear(\n"
        "  in_features=2, out_features=3, bias=True\n"
        "  (parametrizations): ModuleDict(\n"
        "    (weight): ParametrizationList(\n"
        "      (0): _WeightNorm()\n"
        "    )\n"
        "  )\n"
        ")"
    ),
    "TransformerEncoderLayer(8, 2)": (
        "TransformerEncoderLayer(\n"
        "  (self_attn): MultiheadAttention(\n"
        "    (out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)\n"
        "  )\n"
        "  (linear1): Linear(in_features=8, out_features=2048, bias=True)\n"
        "  (dropout): Dropout(p=0.1, inplace=False)\n"
        "  (linear2): Linear(in_features=2048, out_features=8, bias=True)\n"
        "  (norm1): LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)\n"
        "  (norm2): LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)\n"
        "  (dropout1): Dropout(p=0.1, inplace=False)\n"
        "  (dropout2): Dropout(p=0.1, inplace=False)\n"
        ")"
    ),
    "AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12])": (
        "AdaptiveLogSoftmaxWithLoss(\n"
        "  (head): Linear(in_features=8, out_features=7, bias=False)\n"
        "  (tail): ModuleList(\n"
        "    (0): Sequential(\n"
        "      (0): Linear(in_features=8, out_features=2, bias=False)\n"
        "      (1): Linear(in_features=2, out_features=7, bias=False)\n"
        "    )\n"
        "    (1): Sequential(\n"
        "      (0): Linear(in_features=8, out_features=0, bias=False)\n"
        "      (1): Linear(in_features=0, out_features=8, bias=False)\n"
        "    )\n"
        "  )\n"
        ")"
    ),
}


class Net(nn.Module):
    """The network of PyTorch's MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(9216, 128)


class Reprs(unittest.TestCase):
    def test_modules_print_as_recorded(self) -> None:
        names = {"nn": nn, "torch": torch, "OrderedDict": OrderedDict}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for expression, text in REPRS.items():
                with self.subTest(expression):
                    self.assertEqual(repr(eval("nn." + expression, names)), text)

    def test_a_network_of_ones_own(self) -> None:
        self.assertEqual(
            repr(Net()),
            "Net(\n"
            "  (conv1): Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1))\n"
            "  (conv2): Conv2d(32, 64, kernel_size=(3, 3), stride=(1, 1))\n"
            "  (dropout1): Dropout(p=0.25, inplace=False)\n"
            "  (fc1): Linear(in_features=9216, out_features=128, bias=True)\n"
            ")",
        )

    def test_extra_repr_stands_before_the_parts(self) -> None:
        class Odd(nn.Module):
            def __init__(self, parts: bool, lines: str) -> None:
                super().__init__()
                self.lines = lines
                if parts:
                    self.a = nn.ReLU()

            def extra_repr(self) -> str:
                return self.lines

        self.assertEqual(repr(Odd(False, "x=1")), "Odd(x=1)")
        self.assertEqual(repr(Odd(True, "x=1")), "Odd(\n  x=1\n  (a): ReLU()\n)")
        self.assertEqual(repr(Odd(False, "x=1\ny=2")), "Odd(\n  x=1\n  y=2\n)")
        self.assertEqual(repr(Odd(False, "")), "Odd()")


if __name__ == "__main__":
    unittest.main()
