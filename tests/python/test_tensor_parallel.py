"""Layers split over devices: results and gradients of the unsplit ones, in float64. Devices are virtual ones, in programs of
their own; what needs none runs on the host alone."""
import unittest

import athanor as torch
import ranks
from athanor import nn
from athanor.nn.parallel import ColumnParallelLinear, ParallelEmbedding, ParallelMultiheadAttention, RowParallelLinear

PROGRAM = """
import athanor as torch
import athanor.nn.functional as F
from athanor import nn
from athanor.nn.parallel import ColumnParallelLinear, ParallelEmbedding, ParallelMultiheadAttention, RowParallelLinear

torch.manual_seed(3)
devices = [f"cuda:{i}" for i in range(N)]

def same(a, b):
    assert a.shape == b.shape and torch.allclose(a.cpu(), b.cpu(), rtol=1e-10, atol=1e-12), (a, b)

def check(whole, split, joined, *inputs, **keywords):
    given = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    expected = whole(*inputs_of(whole, given), **keywords)
    expected = expected[0] if isinstance(expected, tuple) else expected
    seed = torch.randn_like(expected)
    expected.backward(seed)
    wanted = [x.grad.clone() for x in given if x.requires_grad]
    for x in given:
        x.grad = None
    result = split(*given, **keywords)
    same(result, expected)
    assert str(result.device) == devices[0], result.device
    result.backward(seed.to(result.device))
    for x, w in zip([x for x in given if x.requires_grad], wanted):
        same(x.grad, w)
    for name, dim, grad in joined:
        same(torch.cat([p.grad.cpu() for n, p in split.named_parameters() if n.startswith(name)], dim), grad())

def inputs_of(whole, given):
    return given

x = torch.randn(4, 3, 7, dtype=torch.float64)
for bias in (True, False):
    whole = nn.Linear(7, 8, bias=bias).double()
    check(whole, ColumnParallelLinear(whole, devices), [("weight", 0, lambda: whole.weight.grad)], x)
    whole.zero_grad()
    check(whole, RowParallelLinear(whole, devices), [("weight", 1, lambda: whole.weight.grad)], x)
up, down = nn.Linear(7, 9).double(), nn.Linear(9, 5).double()
first, second = ColumnParallelLinear(up, devices), RowParallelLinear(down, devices)
same(second.forward_parts([F.gelu(p) for p in first.forward_parts(x)]), down(F.gelu(up(x))))

table = nn.Embedding(11, 6, padding_idx=-2).double()
places = torch.tensor([[0, 10, 9, 3], [5, 5, 7, 1]])
check(table, ParallelEmbedding(table, devices), [("weight", 0, lambda: table.weight.grad)], places)

for batch_first in (False, True):
    whole = nn.MultiheadAttention(12, 4, batch_first=batch_first).double()
    with torch.no_grad():
        whole.in_proj_bias.normal_()
    q = torch.randn(3, 3, 12, dtype=torch.float64)
    split = ParallelMultiheadAttention(whole, devices)
    closed = torch.ones(3, 3, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False, False, True]] * 3)
    out = [("out_weight", 1, lambda: whole.out_proj.weight.grad)]
    for masks in ({}, {"attn_mask": closed}, {"key_padding_mask": padding},
                  {"attn_mask": torch.randn(3, 3, dtype=torch.float64), "key_padding_mask": padding}):
        whole.zero_grad(); split.zero_grad()
        check(whole, split, out, q, q * 2, q - 1, **masks)
    same(split(q, q, q, is_causal=True), whole(q, q, q, attn_mask=closed)[0])
other = nn.MultiheadAttention(12, 4, kdim=5, vdim=6, bias=False).double()
check(other, ParallelMultiheadAttention(other, devices), [], q, torch.randn(2, 3, 5).double(), torch.randn(2, 3, 6).double())

try:
    ColumnParallelLinear(up, devices, sizes=[9] + [0] * (N - 1))
except ValueError as e:
    assert "every device needs a part" in str(e)
print(second, sorted(second.state_dict()))
"""


class OverDevices(unittest.TestCase):
    def test_give_what_the_layers_give(self):
        printed = ranks.run_program(PROGRAM.replace("range(N)", "range(2)").replace("(N - 1)", "1"), devices=2)
        self.assertEqual(printed, "RowParallelLinear(in_features=5 on cuda:0, 4 on cuda:1, out_features=5) "
                                  "['bias', 'weight_0', 'weight_1']\n")

    def test_also_over_three(self):
        ranks.run_program(PROGRAM.replace("range(N)", "range(3)").replace("(N - 1)", "2"), devices=3)


class OnTheHost(unittest.TestCase):
    def test_one_device_is_the_layer(self):
        whole = nn.Linear(3, 2)
        for kind in (ColumnParallelLinear, RowParallelLinear):
            split = kind(whole, ["cpu"])
            x = torch.randn(5, 3)
            self.assertTrue(torch.allclose(split(x), whole(x)))
            self.assertNotEqual(split.weight_0.data_ptr(), whole.weight.data_ptr())

    def test_wrong_splits_are_refused(self):
        for arguments, text in (((["cpu", "cpu"],), "listed twice"), ((["cpu"], [1, 1]), "are for 2 parts"),
                                ((["cpu"], [3]), "do not add up"), (([],), "at least one device")):
            with self.assertRaisesRegex(ValueError, text):
                ColumnParallelLinear(nn.Linear(3, 2), *arguments)
        with self.assertRaisesRegex(ValueError, "max_norm"):
            ParallelEmbedding(nn.Embedding(3, 2, max_norm=1.0), ["cpu"])
        with self.assertRaisesRegex(ValueError, "add_bias_kv"):
            ParallelMultiheadAttention(nn.MultiheadAttention(4, 2, add_bias_kv=True), ["cpu"])

    def test_wrong_inputs_are_refused(self):
        column, row = ColumnParallelLinear(nn.Linear(3, 2), ["cpu"]), RowParallelLinear(nn.Linear(3, 2), ["cpu"])
        for layer in (column, row):
            with self.assertRaisesRegex(RuntimeError, "last dimension is 3, got"):
                layer(torch.ones(2, 4))
        with self.assertRaisesRegex(ValueError, "2 parts of an input for 1 devices"):
            row.forward_parts([torch.ones(2, 3)] * 2)
        with self.assertRaisesRegex(ValueError, "should have 3 features"):
            row.forward_parts([torch.ones(2, 4)])
        for wrong in (-1, 11):
            with self.assertRaises(IndexError):
                ParallelEmbedding(nn.Embedding(11, 2), ["cpu"])(torch.tensor([wrong]))
        heads = ParallelMultiheadAttention(nn.MultiheadAttention(4, 2), ["cpu"])
        q = torch.ones(3, 1, 4)
        with self.assertRaisesRegex(ValueError, "is_causal stands for"):
            heads(q, q, q, torch.zeros(3, 3), is_causal=True)
        with self.assertRaisesRegex(RuntimeError, "3-D"):
            heads(q[0], q[0], q[0])


if __name__ == "__main__":
    unittest.main()
