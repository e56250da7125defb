"""Rare forms of layers and functions, each held against what PyTorch gives."""

from __future__ import annotations

import copy
import gc
import pickle
import types
import unittest
import warnings
import weakref

import athanor as torch
import athanor.nn.functional as F
from athanor import nn


class Functions(unittest.TestCase):
    def test_the_weighted_huber_loss_is_a_mean_over_elements(self) -> None:
        x, y, w = (torch.tensor(v) for v in ([0.0, 3.0], [0.5, 0.0], [2.0, 4.0]))
        each = [2.0 * 0.125, 4.0 * 2.5]
        for reduction, wanted in (("mean", sum(each) / 2), ("sum", sum(each)), ("none", each)):
            got = F.huber_loss(x, y, reduction=reduction, weight=w)
            self.assertEqual(got.tolist(), wanted)

    def test_ops_are_pickled_by_name(self):
        for f in (torch.add, F.gelu, F.one_hot, F.scaled_dot_product_attention):
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                self.assertIs(pickle.loads(pickle.dumps(f, protocol)), f)
        layer = pickle.loads(pickle.dumps(nn.TransformerEncoderLayer(4, 2, 8, activation=F.gelu)))
        self.assertIs(layer.activation, F.gelu)

    def test_padding_by_nothing_is_a_copy(self):
        for mode in ("constant", "reflect", "replicate", "circular"):
            x = torch.zeros(2, 3, 4)
            F.pad(x, (0, 0), mode=mode).fill_(1)
            self.assertEqual(x.sum().item(), 0, mode)

    def test_bytes_are_classes(self):
        target = torch.tensor([0, 2], dtype=torch.uint8)
        x = torch.rand(2, 3)
        self.assertEqual(F.cross_entropy(x, target), F.cross_entropy(x, target.long()))
        self.assertEqual(F.nll_loss(x, target), F.nll_loss(x, target.long()))

    def test_no_points_and_no_images_are_sampled(self):
        self.assertEqual(F.grid_sample(torch.rand(0, 2, 3, 3), torch.rand(0, 3, 2, 2), align_corners=False).shape,
                         (0, 2, 3, 2))
        self.assertEqual(F.grid_sample(torch.rand(1, 2, 3, 3, 3), torch.rand(1, 0, 2, 2, 3), align_corners=True).shape,
                         (1, 2, 0, 2, 2))

    def test_second_gradients_of_norms_of_nothing(self):
        x = torch.randn(0, 5, dtype=torch.float64, requires_grad=True)
        w, b = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
        self.assertTrue(torch.autograd.gradgradcheck(lambda *a: F.layer_norm(a[0], (5,), a[1], a[2]), (x, w, b)))
        self.assertTrue(torch.autograd.gradgradcheck(lambda *a: F.rms_norm(a[0], (5,), a[1]), (x, w)))

    def test_cosines_of_two_dtypes(self):
        a, b = torch.ones(3, 2, dtype=torch.int8), torch.full((3, 2), 2.0)
        self.assertEqual(F.cosine_similarity(a, b).round(decimals=5).tolist(), [1.0] * 3)
        self.assertEqual(F.cosine_similarity(a.double(), b, dim=0).dtype, torch.float64)

    def test_fractional_pooling_of_no_examples_and_of_one_without_batch(self):
        x = torch.rand(0, 4, 8, 8, requires_grad=True)
        out = nn.FractionalMaxPool2d(2, output_size=3)(x)
        self.assertEqual(out.shape, (0, 4, 3, 3))
        out.sum().backward()
        self.assertEqual(x.grad.shape, x.shape)
        self.assertEqual(nn.FractionalMaxPool3d(2, output_ratio=0.5)(torch.rand(0, 4, 8, 8, 8)).shape, (0, 4, 4, 4, 4))
        image, samples = torch.rand(4, 8, 8), torch.rand(2, 4, 2)
        pool = nn.FractionalMaxPool2d(2, output_size=3, _random_samples=samples)
        self.assertTrue(torch.equal(pool(image), pool(image.expand(2, 4, 8, 8))[0]))

    def test_gradients_of_convolutions(self):
        for d, conv in ((1, F.conv1d), (2, F.conv2d), (3, F.conv3d)):
            x = torch.randn(2, 4, *[6] * d, dtype=torch.float64, requires_grad=True)
            w = torch.randn(6, 2, *[3] * d, dtype=torch.float64, requires_grad=True)
            options = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
            out = conv(x, w, None, 2, 1, 1, 2)
            g = torch.randn_like(out).requires_grad_()
            dx, dw = torch.autograd.grad(out, (x, w), g)
            of_input, of_weight = (getattr(nn.grad, f"conv{d}d_{k}") for k in ("input", "weight"))
            self.assertTrue(torch.allclose(of_input(x.shape, w, g, **options), dx))
            self.assertTrue(torch.allclose(of_weight(x, w.shape, g, **options), dw))
            twice = torch.autograd.grad(of_input(x.shape, w, g, **options).square().sum(), (w, g))
            self.assertTrue(all(t.abs().sum() > 0 for t in twice))


class Modules(unittest.TestCase):
    def test_hooks_of_the_old_form_see_the_last_operation(self):
        seen = []
        net = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        net.register_backward_hook(lambda module, grad_in, grad_out: seen.append((grad_in, grad_out)))
        x = torch.ones(1, 3, requires_grad=True)
        with self.assertWarnsRegex(FutureWarning, "multiple autograd Nodes"):
            y = net(x)
        y.sum().backward()
        (grad_in, grad_out), = seen
        self.assertEqual(grad_out[0].tolist(), [[1.0, 1.0]])
        self.assertTrue(torch.allclose(grad_in[0], 1 - y.detach() ** 2))
        with self.assertRaisesRegex(RuntimeError, "regular backward hooks and full backward hooks"):
            net.register_full_backward_hook(lambda *_: None)

    def test_hooks_of_the_old_form_change_gradients_and_may_be_global(self):
        x = torch.ones(2, requires_grad=True)
        with nn.modules.module.register_module_backward_hook(lambda m, i, o: tuple(g * 3 for g in i)):
            nn.Sigmoid()(x).sum().backward()
        self.assertTrue(torch.allclose(x.grad, 3 * torch.sigmoid(torch.ones(2)) * (1 - torch.sigmoid(torch.ones(2)))))
        nn.modules.module.every_module.backward_is_full = None

    def test_a_hooked_modules_inputs_that_need_no_gradient_still_need_none(self):
        seen = []

        class Add(nn.Module):
            def forward(self, a, b):
                seen.append((a.requires_grad, b.requires_grad))
                return a + b

        module = Add()
        module.register_full_backward_hook(lambda *_: None)
        module(torch.ones(1, requires_grad=True), torch.ones(1)).backward()
        self.assertEqual(seen, [(True, False)])

    def test_places_of_parameters_may_be_tensors(self):
        parameters = nn.ParameterList([torch.zeros(1), torch.zeros(1)])
        parameters[torch.tensor(0)] = nn.Parameter(torch.ones(1))
        self.assertEqual([p.item() for p in parameters], [1.0, 0.0])

    def test_to_refuses_what_is_no_dtype(self):
        for arguments in (("cpu", True), (None, True)):
            with self.assertRaises(TypeError):
                nn.Linear(2, 2).to(*arguments)

    def test_a_state_that_was_read_is_freed_at_once(self):
        gc.collect()
        gc.disable()
        try:
            state = nn.Linear(2, 2).state_dict()
            gone = weakref.ref(state["weight"])
            nn.Linear(2, 2).load_state_dict(state)
            del state
            self.assertIsNone(gone())
        finally:
            gc.enable()

    def test_a_second_parametrization_has_to_lead_back_to_a_tensor(self):
        class Lost(nn.Module):
            def forward(self, x):
                return x

            def right_inverse(self, x):
                return None

        layer = nn.Linear(2, 2)
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Identity())
        with self.assertRaisesRegex(ValueError, "right_inverse must return a tensor"):
            nn.utils.parametrize.register_parametrization(layer, "weight", Lost())

    def test_packed_sequences_take_every_dtype(self):
        packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
        for name, dtype in (("short", torch.int16), ("char", torch.int8), ("byte", torch.uint8)):
            self.assertIs(getattr(packed, name)().data.dtype, dtype)


class Schedules(unittest.TestCase):
    def test_a_step_of_the_programs_own_counts(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        optimizer.step = types.MethodType(lambda self: None, optimizer)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
            schedule.step()
        copy.copy(schedule.state_dict())

    def test_a_step_replaced_after_the_schedule_is_told(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer.step = types.MethodType(lambda self: None, optimizer)
        optimizer.step()
        with self.assertWarnsRegex(UserWarning, "has been overridden after"):
            schedule.step()


class Folds(unittest.TestCase):
    def test_are_dense(self):
        folded = F.fold(torch.arange(64.0).view(1, 4, 16), (3, 3), (2, 2), padding=1)
        self.assertTrue(folded.is_contiguous())
        self.assertEqual(folded.view(-1).shape, (9,))


class RecurrentLayersOfNothing(unittest.TestCase):
    def test_take_no_examples_but_no_empty_sequences(self):
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            net = kind(2, 3, num_layers=2, bidirectional=True)
            x = torch.ones(4, 0, 2, requires_grad=True)
            y, hidden = net(x)
            y.sum().backward()
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            self.assertEqual((y.shape, hidden.shape, x.grad.shape), ((4, 0, 6), (4, 0, 3), (4, 0, 2)))
            self.assertTrue(all(p.grad is not None and not p.grad.any() for p in net.parameters()))
            with self.assertRaisesRegex(RuntimeError, "Expected sequence length to be larger than 0 in RNN"):
                net(torch.ones(0, 2, 2))


if __name__ == "__main__":
    unittest.main()
