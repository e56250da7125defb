"""What PyTorch's own tests were found to ask for: layouts of results, copies that share memory, seeds, lengths, errors."""
import copy
import math
import unittest
import warnings

import athanor as torch
from athanor import nn
from athanor.nn import functional as F

NAN = float("nan")


class Layouts(unittest.TestCase):
    def test_results_keep_the_order_of_dims_of_a_view_with_gaps(self):
        x = torch.randn(4, 4, 8, 8).contiguous(memory_format=torch.channels_last)
        a, b = x.chunk(2, 1)
        self.assertEqual((a + b).stride(), (128, 1, 16, 2))
        self.assertTrue(torch.equal(a + b, a.contiguous() + b.contiguous()))
        y = torch.arange(120.0).reshape(2, 3, 4, 5).permute(3, 1, 0, 2)[1:3]
        for made in (y.clone(), y * 1, torch.empty_like(y), y.exp(), y.to(torch.float64), y.relu()):
            self.assertEqual(made.stride(), (1, 8, 24, 2))
        self.assertTrue(torch.equal(y.clone(), y))
        self.assertTrue(torch.equal(y * 1, y))
        rows = torch.randn(10, 10).as_strided((2, 3), (10, 2))
        self.assertEqual(rows.t().clone().stride(), (1, 3))
        self.assertEqual(rows.clone().stride(), (3, 1))
        self.assertEqual(torch.ones(3, 1).expand(3, 4).clone().stride(), (4, 1))

    def test_a_new_leading_dim_strides_over_what_follows(self):
        x = torch.arange(5.0)
        self.assertEqual(x.expand(1, 5).stride(), (5, 1))
        self.assertEqual(x.expand(1, 1, 5).stride(), (5, 5, 1))
        self.assertEqual(x.expand(3, 5).stride(), (0, 1))
        self.assertEqual(x.expand(1, 3, 5).stride(), (0, 0, 1))

    def test_ops_on_images_keep_channels_last(self):
        x = torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
        for f in (lambda t: F.interpolate(t, 12), lambda t: F.group_norm(t, 2), lambda t: F.channel_shuffle(t, 2),
                  lambda t: F.pixel_unshuffle(t, 2), lambda t: F.interpolate(t, scale_factor=0.5, mode="nearest-exact")):
            y = f(x.clone().requires_grad_())
            self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
            self.assertTrue(torch.allclose(y, f(x.contiguous()), atol=1e-6))
            y.sum().backward()
        volume = torch.randn(2, 3, 2, 2, 2).contiguous(memory_format=torch.channels_last_3d)
        self.assertTrue(F.interpolate(volume, 4).is_contiguous(memory_format=torch.channels_last_3d))

    def test_ravel_is_contiguous(self):
        self.assertEqual(torch.ones(6)[::2].ravel().stride(), (1,))
        x = torch.ones(2, 3)
        self.assertEqual(x.ravel().data_ptr(), x.data_ptr())

    def test_adjoint_of_a_number_is_itself(self):
        self.assertEqual(torch.tensor(2.0).adjoint().item(), 2)


class DeepCopies(unittest.TestCase):
    def test_tensors_of_one_storage_share_one_in_the_copy(self):
        x = torch.arange(4.0)
        y, part, storage = copy.deepcopy((x, x[1:], x.untyped_storage()))
        y[1] = 50
        self.assertEqual(part.tolist(), [50, 2, 3])
        self.assertEqual(storage.data_ptr(), y.data_ptr())
        self.assertEqual(x.tolist(), [0, 1, 2, 3])
        self.assertEqual(copy.deepcopy(x.reshape(2, 2).t()).stride(), (1, 2))

    def test_buffers_that_are_views_of_each_other_stay_so(self):
        m = nn.Module()
        m.register_buffer("table", torch.arange(3.0))
        m.register_buffer("last", m.table[2:])
        other = copy.deepcopy(m)
        other.table.fill_(7)
        self.assertEqual(other.last.tolist(), [7])
        self.assertEqual(m.last.tolist(), [2])

    def test_requires_grad_gradients_and_attributes_are_copied(self):
        x = torch.ones(2, requires_grad=True)
        (x * 3).sum().backward()
        x.name_of_mine = ["a"]
        y = copy.deepcopy(x)
        self.assertTrue(y.requires_grad and y.is_leaf)
        self.assertEqual(y.grad.tolist(), [3, 3])
        self.assertNotEqual(y.grad.data_ptr(), x.grad.data_ptr())
        self.assertEqual(y.name_of_mine, ["a"])
        self.assertEqual(copy.deepcopy(torch.empty(0, 3)).shape, (0, 3))


class Numbers(unittest.TestCase):
    def test_seeds_are_all_of_64_bits(self):
        for seed, kept in ((-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (-(2**63), 2**63), (1.5, 1)):
            self.assertEqual(torch.manual_seed(seed).initial_seed(), kept)
        self.assertEqual(torch.Generator().manual_seed(2**64 - 1).initial_seed(), 2**64 - 1)
        torch.manual_seed(2**64 - 1)
        torch.manual_seed(torch.initial_seed())
        for seed in (2**64, -(2**63) - 1):
            with self.assertRaises(ValueError):
                torch.manual_seed(seed)
        torch.manual_seed(0)

    def test_the_covariance_of_too_few_observations_is_not_negative(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            c = torch.cov(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), correction=5)
            empty = torch.cov(torch.ones(3, 0))
        self.assertEqual(len(seen), 2)
        self.assertTrue((c == math.inf).all())
        self.assertTrue(empty.isnan().all())

    def test_the_gradient_of_an_extreme_that_is_nan_goes_to_the_nans(self):
        for f in (torch.max, torch.min):
            for values, expected in (([NAN, 1, NAN], [0.5, 0, 0.5]), ([2.0, 2.0, 2.0], [1 / 3] * 3)):
                x = torch.tensor(values, requires_grad=True)
                f(x).backward()
                for got, wanted in zip(x.grad.tolist(), expected):
                    self.assertAlmostEqual(got, wanted, places=6)
        for f in (torch.amax, torch.amin):
            x = torch.tensor([[NAN, 1.0], [3.0, 2.0]], requires_grad=True)
            f(x, 1).sum().backward()
            self.assertTrue(x.grad[0].isnan().all())
            self.assertEqual(sorted(x.grad[1].tolist()), [0, 1])

    def test_one_hot_checks_the_number_of_classes(self):
        for classes in (0, -2):
            with self.assertRaises(RuntimeError):
                F.one_hot(torch.tensor([3, 4]), classes)
        self.assertEqual(F.one_hot(torch.tensor([1, 0]), -1).tolist(), [[0, 1], [1, 0]])

    def test_the_gradient_of_sinc_next_to_zero_is_not_nan(self):
        for dtype, small in ((torch.float16, 1e-5), (torch.float32, 1e-30), (torch.float64, 1e-200)):
            x = torch.tensor([small, 0.0, -small], dtype=dtype, requires_grad=True)
            torch.sinc(x).sum().backward()
            self.assertTrue(x.grad.isfinite().all())
            self.assertTrue((x.grad.abs() < 1e-3).all())

    def test_norms_of_nothing_that_have_no_identity_are_refused(self):
        for order in (math.inf, -math.inf, -1):
            with self.assertRaises(RuntimeError):
                torch.linalg.vector_norm(torch.empty(0), order)
            with self.assertRaises(RuntimeError):
                torch.linalg.vector_norm(torch.empty(0, 3), order, 0)
            self.assertEqual(torch.linalg.vector_norm(torch.empty(0, 3), order, 1).shape, (0,))

    def test_uniform_refuses_bounds_that_the_dtype_does_not_hold(self):
        with self.assertRaises(RuntimeError):
            torch.empty(2).uniform_(0, 1e40)
        with self.assertRaises(RuntimeError):
            torch.empty(2, dtype=torch.float16).uniform_(0, 1e5)
        torch.empty(2, dtype=torch.float64).uniform_(0, 1e40)

    def test_range_checks_its_step_and_fills_out(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for bad in ((1, 0), (1, 3, 0), (0, 1, -1)):
                with self.assertRaises(RuntimeError):
                    torch.range(*bad)
            out = torch.empty(0, dtype=torch.int64)
            self.assertIs(torch.range(1, 3, out=out), out)
            self.assertEqual(out.tolist(), [1, 2, 3])

    def test_gradcheck_takes_results_of_operations(self):
        leaf = torch.ones(2, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda x: x**2, leaf * 3))


class Layers(unittest.TestCase):
    def test_recurrent_layers_take_no_examples(self):
        rnn, lstm, gru = nn.RNN(3, 4), nn.LSTM(3, 4, 2, bidirectional=True), nn.GRU(3, 4, batch_first=True)
        out, h = rnn(torch.ones(5, 0, 3))
        self.assertEqual((out.shape, h.shape), ((5, 0, 4), (1, 0, 4)))
        out, (h, c) = lstm(torch.ones(5, 0, 3))
        self.assertEqual((out.shape, h.shape, c.shape), ((5, 0, 8), (4, 0, 4), (4, 0, 4)))
        out, h = gru(torch.ones(0, 5, 3))
        self.assertEqual((out.shape, h.shape), ((0, 5, 4), (1, 0, 4)))
        out.sum().backward()
        self.assertTrue(all((p.grad == 0).all() for p in gru.parameters()))
        with self.assertRaises(RuntimeError):
            rnn(torch.ones(0, 2, 3))

    def test_averages_of_windows_of_integers_are_cut_off(self):
        x = torch.arange(16).reshape(1, 1, 4, 4)
        self.assertEqual(F.avg_pool2d(x, 2).tolist(), [[[[2, 4], [10, 12]]]])
        self.assertEqual(F.avg_pool2d(-x, 2, padding=1).tolist(), [[[[0, 0, 0], [-3, -7, -4], [-3, -6, -3]]]])
        self.assertEqual(F.avg_pool2d(x, 2, divisor_override=3).dtype, torch.int64)


class Optimizers(unittest.TestCase):
    def test_adafactor_steps_relative_to_the_size_of_a_parameter(self):
        # By hand: factored squares of a gradient of ones are ones; the step is lr times the root mean square.
        p = nn.Parameter(torch.full((2, 3), 2.0))
        v = nn.Parameter(torch.zeros(4))
        opt = torch.optim.Adafactor([p, v], lr=0.1)
        p.grad, v.grad = torch.ones(2, 3), torch.ones(4)
        opt.step()
        self.assertTrue(torch.allclose(p, torch.full((2, 3), 1.8)))
        self.assertTrue(torch.allclose(v, torch.full((4,), -1e-4)))
        self.assertEqual(sorted(opt.state[p]), ["col_var", "row_var", "step"])
        self.assertEqual((opt.state[p]["row_var"].shape, opt.state[p]["col_var"].shape), ((2, 1), (1, 3)))
        with self.assertRaises(ValueError):
            torch.optim.Adafactor([p], d=0.5)


class Forms(unittest.TestCase):
    def test_new_takes_sizes_tensors_and_storages(self):
        x = torch.ones(2)
        self.assertEqual(x.new(size=(3, 4)).shape, (3, 4))
        self.assertEqual(x.new(x).data_ptr(), x.data_ptr())
        self.assertEqual(x.new(x.storage()).tolist(), [1, 1])
        self.assertEqual(x.new([3, 4]).tolist(), [3, 4])

    def test_type_refuses_other_classes(self):
        x = torch.ones(2, dtype=torch.int32)
        self.assertEqual(x.type(torch.Tensor).dtype, torch.float32)
        with self.assertRaises(ValueError):
            x.type(int)

    def test_shapes_of_negative_length_are_not_broadcast(self):
        with self.assertRaises(ValueError):
            torch.broadcast_shapes((1, -12))

    def test_a_mask_of_one_dim_fails_an_assertion(self):
        q = torch.ones(4, 4, 3)
        with self.assertRaises(AssertionError):
            nn.MultiheadAttention(3, 3)(q, q, q, attn_mask=torch.zeros(4, dtype=torch.bool))


if __name__ == "__main__":
    unittest.main()
