"""nn.utils: clipping, vectors, reparametrizations, fusion, packed sequences."""

from __future__ import annotations

import copy
import math
import unittest
import warnings

import athanor as torch
from athanor import nn
from athanor.nn.utils import parametrizations, parametrize, rnn


def with_gradients(*gradients):
    out = []
    for g in gradients:
        p = nn.Parameter(torch.zeros(len(g)))
        p.grad = torch.tensor(g)
        out.append(p)
    return out


class Clipping(unittest.TestCase):
    def test_norms(self) -> None:
        ps = with_gradients([3.0], [0.0, 4.0])
        self.assertAlmostEqual(float(nn.utils.clip_grad_norm_(ps, 1.0)), 5.0, places=5)
        self.assertAlmostEqual(float(ps[0].grad), 0.6, places=4)
        self.assertAlmostEqual(float(nn.utils.clip_grad_norm_(ps, 10.0)), 1.0, places=4)
        self.assertAlmostEqual(float(nn.utils.clip_grad_norm_(iter(ps), 10.0, math.inf)), 0.8, places=4)
        self.assertAlmostEqual(float(nn.utils.clip_grad_norm_(ps, 10.0, norm_type=1)), 1.4, places=4)
        self.assertEqual(float(nn.utils.clip_grad_norm_(ps, 10.0, norm_type=0)), float(sum(bool(p.grad.any()) for p in ps)))
        self.assertIsInstance(nn.utils.clip_grad_norm_(ps[0], 1.0), torch.Tensor)

    def test_nothing_to_clip(self) -> None:
        p = nn.Parameter(torch.ones(2))
        self.assertEqual(float(nn.utils.clip_grad_norm_([p], 1.0)), 0.0)
        self.assertIsNone(p.grad)

    def test_numbers_that_are_not_finite(self) -> None:
        ps = with_gradients([math.inf], [1.0])
        with self.assertRaisesRegex(RuntimeError, "The total norm of order 2.0 for gradients .* is non-finite"):
            nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
        self.assertEqual(float(ps[1].grad), 1.0)
        nn.utils.clip_grad_norm_(ps, 1.0)
        self.assertEqual(float(ps[1].grad), 0.0)
        ps = with_gradients([math.nan], [1.0])
        nn.utils.clip_grad_norm_(ps, 1.0)
        self.assertTrue(math.isnan(float(ps[1].grad)))

    def test_values(self) -> None:
        ps = with_gradients([3.0, -4.0, 0.5])
        nn.utils.clip_grad_value_(ps, 1)
        self.assertEqual(ps[0].grad.tolist(), [1.0, -1.0, 0.5])

    def test_in_two_steps(self) -> None:
        ps = with_gradients([3.0, 4.0])
        total = nn.utils.get_total_norm([p.grad for p in ps])
        nn.utils.clip_grads_with_norm_(ps, 2.5, total)
        self.assertAlmostEqual(float(ps[0].grad[0]), 1.5, places=4)


class Vectors(unittest.TestCase):
    def test_there_and_back(self) -> None:
        net = nn.Linear(2, 3)
        vector = nn.utils.parameters_to_vector(net.parameters())
        self.assertEqual(tuple(vector.shape), (9,))
        nn.utils.vector_to_parameters(torch.arange(9.0), net.parameters())
        self.assertEqual(net.weight.tolist(), [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
        self.assertEqual(net.bias.tolist(), [6.0, 7.0, 8.0])
        self.assertIsInstance(net.bias, nn.Parameter)


class Reparametrizations(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(4, 3)

    def assertClose(self, a, b, tolerance: float = 1e-5) -> None:
        self.assertLess(float((a - b).detach().abs().max()), tolerance)

    def test_weight_norm_changes_nothing_at_first(self) -> None:
        for dim in (0, 1, None):
            layer = nn.Linear(3, 2)
            y = layer(self.x)
            parametrizations.weight_norm(layer, dim=dim)
            self.assertClose(layer(self.x), y)
            names = [n for n, _ in layer.named_parameters()]
            self.assertEqual(names, ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"])
            with torch.no_grad():
                layer.parametrizations.weight.original0.mul_(2)
            self.assertClose(layer(self.x) - layer.bias, 2 * (y - layer.bias))
            layer(self.x).sum().backward()
            self.assertIsNotNone(layer.parametrizations.weight.original1.grad)
            parametrize.remove_parametrizations(layer, "weight")
            self.assertEqual(type(layer), nn.Linear)
            self.assertEqual([n for n, _ in layer.named_parameters()], ["bias", "weight"])
            self.assertClose(layer(self.x) - layer.bias, 2 * (y - layer.bias))

    def test_states_of_the_old_weight_norm_load(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old = nn.utils.weight_norm(nn.Linear(3, 2))
        new = parametrizations.weight_norm(nn.Linear(3, 2))
        new.load_state_dict(old.state_dict())
        self.assertClose(new(self.x), old(self.x))

    def test_old_weight_norm(self) -> None:
        layer = nn.Linear(3, 2)
        y = layer(self.x)
        with self.assertWarns(FutureWarning):
            nn.utils.weight_norm(layer)
        self.assertEqual([n for n, _ in layer.named_parameters()], ["bias", "weight_g", "weight_v"])
        self.assertEqual(tuple(layer.weight_g.shape), (2, 1))
        self.assertClose(layer(self.x), y)
        layer(self.x).sum().backward()
        self.assertIsNotNone(layer.weight_g.grad)
        with torch.no_grad():
            layer.weight_g.fill_(1.0)
        layer(self.x)
        self.assertClose(layer.weight.norm(2, [1]), torch.ones(2))
        nn.utils.remove_weight_norm(layer)
        self.assertEqual([n for n, _ in layer.named_parameters()], ["bias", "weight"])
        with self.assertRaisesRegex(ValueError, "weight_norm of 'weight' not found"):
            nn.utils.remove_weight_norm(layer)

    def test_spectral_norm_makes_the_greatest_singular_value_one(self) -> None:
        for new in (False, True):
            layer = nn.Linear(3, 3)
            with torch.no_grad():
                layer.weight.copy_(torch.tensor([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.5]]))
            (parametrizations.spectral_norm if new else nn.utils.spectral_norm)(layer, n_power_iterations=30)
            layer(self.x)
            self.assertClose(layer.weight.diagonal(), torch.tensor([1.0, 2 / 3, 0.5 / 3]), 1e-3)
            first, second = layer(self.x), layer(self.x)
            (first.sum() + second.sum()).backward()
            keys = list(layer.state_dict())
            if new:
                parametrize.remove_parametrizations(layer, "weight")
                self.assertIn("parametrizations.weight.0._u", keys)
            else:
                nn.utils.remove_spectral_norm(layer)
                self.assertEqual(keys, ["bias", "weight_orig", "weight_u", "weight_v"])
            self.assertClose(layer.weight.diagonal(), torch.tensor([1.0, 2 / 3, 0.5 / 3]), 1e-3)

    def test_orthogonal_stays_orthogonal(self) -> None:
        for shape in ((3, 3), (3, 5), (5, 3)):
            layer = parametrizations.orthogonal(nn.Linear(shape[1], shape[0]))
            with torch.no_grad():
                layer.parametrizations.weight.original.normal_()
            w = layer.weight
            product = w @ w.t() if shape[0] <= shape[1] else w.t() @ w
            self.assertClose(product, torch.eye(3), 1e-4)
            w.sum().backward()
            self.assertIsNotNone(layer.parametrizations.weight.original.grad)

    def test_ones_own_parametrization(self) -> None:
        class Symmetric(nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).t()

            def right_inverse(self, a):
                return a.triu()

        layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
        self.assertEqual(type(layer).__name__, "ParametrizedLinear")
        self.assertTrue(torch.equal(layer.weight, layer.weight.t()))
        value = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
        layer.weight = value
        self.assertTrue(torch.equal(layer.weight, value))
        self.assertTrue(parametrize.is_parametrized(layer, "weight"))
        self.assertFalse(parametrize.is_parametrized(layer, "bias"))
        self.assertIs(parametrize.type_before_parametrizations(layer), nn.Linear)
        with parametrize.cached():
            self.assertIs(layer.weight, layer.weight)
        self.assertIsNot(layer.weight, layer.weight)
        other = copy.deepcopy(layer)
        with torch.no_grad():
            other.parametrizations.weight.original.fill_(0)
        self.assertTrue(torch.equal(layer.weight, value))
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
        self.assertTrue(torch.equal(layer.weight, value.triu()))

    def test_parametrizations_that_change_the_shape_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "may not change the shape"):
            parametrize.register_parametrization(nn.Linear(2, 3), "weight", nn.Flatten(0))


class Fusion(unittest.TestCase):
    def test_convolution_and_batch_norm(self) -> None:
        torch.manual_seed(0)
        conv, norm = nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3)
        for _ in range(3):
            norm(torch.randn(4, 3, 5, 5) * 2 + 1)
        conv.eval(), norm.eval()
        x = torch.randn(1, 2, 6, 6)
        fused = nn.utils.fuse_conv_bn_eval(conv, norm)
        self.assertLess(float((fused(x) - norm(conv(x))).detach().abs().max()), 1e-5)
        self.assertIsNone(conv.bias)
        with self.assertRaises(AssertionError):
            nn.utils.fuse_conv_bn_eval(conv.train(), norm)


class Sequences(unittest.TestCase):
    def test_packing_and_back(self) -> None:
        padded = torch.arange(12.0).reshape(4, 3)
        packed = rnn.pack_padded_sequence(padded, torch.tensor([2, 4, 1]), enforce_sorted=False)
        self.assertEqual(packed.batch_sizes.tolist(), [3, 2, 1, 1])
        self.assertEqual(packed.data.tolist(), [1.0, 0.0, 2.0, 4.0, 3.0, 7.0, 10.0])
        self.assertEqual(packed.sorted_indices.tolist(), [1, 0, 2])
        back, lengths = rnn.pad_packed_sequence(packed, padding_value=-1.0)
        self.assertEqual(lengths.tolist(), [2, 4, 1])
        self.assertEqual(back.tolist(), [[0.0, 1.0, 2.0], [3.0, 4.0, -1.0], [-1.0, 7.0, -1.0], [-1.0, 10.0, -1.0]])

    def test_gradients_flow_through_packing(self) -> None:
        x = torch.ones(3, 2, requires_grad=True)
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 1]))[0].sum().backward()
        self.assertEqual(x.grad.tolist(), [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])

    def test_packed_sequences_convert(self) -> None:
        packed = rnn.pack_sequence([torch.ones(2), torch.ones(1)])
        self.assertEqual(packed.double().data.dtype, torch.float64)
        self.assertEqual(packed.to("cpu").data.tolist(), [1.0, 1.0, 1.0])
        self.assertFalse(packed.is_cuda)
        data, sizes, order, back = packed
        self.assertIsNone(order)
        self.assertEqual(sizes.tolist(), [2, 1])

    def test_padding(self) -> None:
        sequences = [torch.ones(2, 2), torch.ones(3, 2)]
        self.assertEqual(tuple(rnn.pad_sequence(sequences).shape), (3, 2, 2))
        left = rnn.pad_sequence(sequences, batch_first=True, padding_side="left")
        self.assertEqual(left[0, :, 0].tolist(), [0.0, 1.0, 1.0])


class FunctionalCall(unittest.TestCase):
    def test_other_parameters_take_the_place_of_a_modules_own(self) -> None:
        call = nn.utils.stateless.functional_call
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        own = net[0].weight
        weight = torch.ones(3, 2, requires_grad=True)
        x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
        out = call(net[0], {"weight": weight, "bias": torch.zeros(3)}, x)
        self.assertEqual(out.tolist(), [[3.0] * 3, [8.0] * 3])
        out.sum().backward()
        self.assertEqual(weight.grad.tolist(), [[4.0, 7.0]] * 3)
        self.assertIs(net[0].weight, own)
        self.assertIsNone(own.grad)
        count = torch.tensor(0)
        call(net, ({"0.weight": weight}, {"1.num_batches_tracked": count}), (x,))
        self.assertEqual((int(count), int(net[1].num_batches_tracked)), (1, 0))

    def test_the_module_is_whole_again_after_errors(self) -> None:
        net = nn.Linear(2, 3)
        own = net.weight
        with self.assertRaises(RuntimeError):
            nn.utils.stateless.functional_call(net, {"weight": torch.ones(3, 2)}, torch.ones(1, 5))
        self.assertIs(net.weight, own)
        with self.assertRaises(AttributeError):
            nn.utils.stateless.functional_call(net, {"wait": own}, torch.ones(1, 2))
        with self.assertRaisesRegex(RuntimeError, r"Missing key\(s\): \['bias'\]"):
            nn.utils.stateless.functional_call(net, {"weight": own}, torch.ones(1, 2), strict=True)

    def test_shared_tensors_are_replaced_everywhere(self) -> None:
        net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
        net[1].weight = net[0].weight
        out = nn.utils.stateless.functional_call(net, {"0.weight": 2 * torch.eye(2)}, torch.ones(1, 2))
        self.assertEqual(out.tolist(), [[4.0, 4.0]])


class SkipInit(unittest.TestCase):
    def test_gives_the_module_without_first_values(self) -> None:
        layer = nn.utils.skip_init(nn.Linear, 2, 3)
        self.assertEqual(tuple(layer.weight.shape), (3, 2))
        with self.assertRaisesRegex(RuntimeError, "Module must support a 'device' arg"):
            nn.utils.skip_init(nn.ReLU)


if __name__ == "__main__":
    unittest.main()
