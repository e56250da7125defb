"""Layers that take their sizes from the first input, and parameters that have no shape before."""

from __future__ import annotations

import copy
import io
import pickle
import unittest

import athanor as torch
from athanor import nn
from athanor.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

LAYERS = [
    (lambda: nn.LazyLinear(5), nn.Linear(3, 5), (4, 3)),
    (lambda: nn.LazyConv1d(4, 3, groups=2), nn.Conv1d(2, 4, 3, groups=2), (1, 2, 7)),
    (lambda: nn.LazyConv2d(4, (3, 2), padding=1, bias=False), nn.Conv2d(2, 4, (3, 2), padding=1, bias=False), (2, 5, 5)),
    (lambda: nn.LazyConv3d(4, 2), nn.Conv3d(3, 4, 2), (1, 3, 4, 4, 4)),
    (lambda: nn.LazyConvTranspose1d(4, 3, 2, 1, 1), nn.ConvTranspose1d(2, 4, 3, 2, 1, 1), (1, 2, 5)),
    (lambda: nn.LazyConvTranspose2d(4, 3, dilation=2), nn.ConvTranspose2d(2, 4, 3, dilation=2), (1, 2, 5, 5)),
    (lambda: nn.LazyConvTranspose3d(4, 2), nn.ConvTranspose3d(2, 4, 2), (1, 2, 3, 3, 3)),
    (lambda: nn.LazyBatchNorm1d(momentum=None), nn.BatchNorm1d(3, momentum=None), (4, 3)),
    (lambda: nn.LazyBatchNorm2d(affine=False), nn.BatchNorm2d(3, affine=False), (4, 3, 2, 2)),
    (lambda: nn.LazyBatchNorm3d(), nn.BatchNorm3d(3), (4, 3, 2, 2, 2)),
    (lambda: nn.LazyInstanceNorm1d(), nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 5)),
    (lambda: nn.LazyInstanceNorm2d(1e-5), nn.InstanceNorm2d(3, 1e-5, 0.1, True, True), (4, 3, 2, 2)),
    (lambda: nn.LazyInstanceNorm3d(track_running_stats=False), nn.InstanceNorm3d(3, affine=True), (4, 3, 2, 2, 2)),
]


class LazyLayers(unittest.TestCase):
    def test_the_first_input_makes_them_the_layers_they_stand_for(self):
        for make, expected, shape in LAYERS:
            with self.subTest(type(expected).__name__):
                lazy = make()
                self.assertTrue(repr(lazy).startswith("Lazy" + type(expected).__name__ + "("))
                torch.manual_seed(3)
                result = lazy(torch.ones(shape))
                self.assertIs(type(lazy), type(expected))
                self.assertEqual(repr(lazy), repr(expected))
                torch.manual_seed(3)
                expected.reset_parameters()
                self.assertEqual([n for n, _ in lazy.named_parameters()], [n for n, _ in expected.named_parameters()])
                self.assertEqual(list(lazy.state_dict()), list(expected.state_dict()))
                self.assertTrue(torch.equal(result, expected(torch.ones(shape))))
                self.assertFalse(lazy._forward_pre_hooks or lazy._load_state_dict_pre_hooks)

    def test_device_dtype_and_optimizer_may_come_before_the_shape(self):
        net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)).double()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        net(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        before = net[0].weight.detach().clone()
        optimizer.step()
        self.assertIs(before.dtype, torch.float64)
        self.assertIs(optimizer.param_groups[0]["params"][0], net[0].weight)
        self.assertTrue(torch.equal(net[0].weight, before - 0.5 * net[0].weight.grad))

    def test_states_are_read_before_the_first_input(self):
        for make, full, shape in copy.deepcopy(LAYERS):
            with self.subTest(type(full).__name__):
                lazy = make()
                self.assertEqual(str(lazy.load_state_dict(full.state_dict())), "<All keys matched successfully>")
                self.assertTrue(torch.equal(copy.deepcopy(lazy).eval()(torch.ones(shape)), full.eval()(torch.ones(shape))))
        with self.assertRaisesRegex(RuntimeError, "uninitialized"):
            nn.Linear(3, 5).load_state_dict(nn.LazyLinear(5).state_dict())
        nn.LazyLinear(5).load_state_dict(nn.LazyLinear(5).state_dict())

    def test_copies_and_files_keep_them_lazy(self):
        for other in (copy.deepcopy(nn.LazyLinear(4)), pickle.loads(pickle.dumps(nn.LazyLinear(4)))):
            self.assertTrue(other.has_uninitialized_params())
            self.assertEqual(other(torch.ones(2, 3)).shape, (2, 4))
            self.assertIs(type(other), nn.Linear)
        file = io.BytesIO()
        torch.save(nn.LazyBatchNorm1d(), file)
        file.seek(0)
        self.assertTrue(torch.load(file, weights_only=False).has_uninitialized_params())

    def test_what_needs_values_says_what_is_missing(self):
        weight = nn.LazyLinear(4).weight
        self.assertEqual(repr(weight), "<UninitializedParameter>")
        for use in (lambda: weight + 1, lambda: 2 * weight, weight.sum, weight.numel, lambda: weight[0],
                    lambda: nn.init.ones_(weight)):
            with self.assertRaisesRegex(ValueError, "uninitialized parameter"):
                use()
        for use in (lambda: weight.shape, lambda: nn.LazyLinear(4).share_memory()):
            with self.assertRaisesRegex(RuntimeError, "uninitialized parameter"):
                use()
        with self.assertRaisesRegex(RuntimeError, "Expected 3D .unbatched. or 4D .batched. input"):
            nn.LazyConv2d(4, 3)(torch.ones(2, 2))
        with self.assertRaisesRegex(ValueError, "divisible by groups"):
            nn.LazyConv2d(4, 3, groups=4)(torch.ones(2, 5, 5))

    def test_modules_of_the_program(self):
        class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = UninitializedParameter()
                self.register_buffer("seen", UninitializedBuffer())

            def initialize_parameters(self, x, times=1):
                self.scale.materialize(x.shape[-1:])
                self.seen.materialize((times,))
                nn.init.constant_(self.scale, 2.0)

            def forward(self, x, times=1):
                return x * self.scale * times

        module = Scale()
        self.assertEqual([is_lazy(t) for t in (*module.parameters(), *module.buffers())], [True, True])
        self.assertEqual(module(torch.ones(2), times=3).tolist(), [6.0, 6.0])
        self.assertIs(type(module.scale), nn.Parameter)
        self.assertEqual(module.seen.shape, (3,))


if __name__ == "__main__":
    unittest.main()
