"""Values and gradients at the edges of ops."""
import math
import unittest

import athanor as torch
import athanor.nn.functional as F


def slopes(f, *numbers):
    """The gradients of f at numbers."""
    inputs = [torch.tensor(n, dtype=torch.float64, requires_grad=True) for n in numbers]
    f(*inputs).sum().backward()
    return [x.grad.tolist() for x in inputs]


class Bounds(unittest.TestCase):
    X = [-2.0, -1.0, 0.0, 1.0, 2.0, math.nan]

    def test_that_are_numbers_take_no_gradient_on(self):
        self.assertEqual(slopes(lambda x: x.clamp(-1, 1), self.X), [[0, 0, 1, 0, 0, 0]])
        self.assertEqual(slopes(lambda x: x.clamp(min=-1), self.X), [[0, 0, 1, 1, 1, 0]])
        self.assertEqual(slopes(lambda x: x.clamp_max(1), self.X), [[1, 1, 1, 0, 0, 0]])
        self.assertEqual(slopes(lambda x: (x * 1).clamp_(-1, 1), self.X), [[0, 0, 1, 0, 0, 0]])

    def test_that_are_tensors_share_the_gradient(self):
        x, low, high = self.X[:5], [-1.0] * 5, [1.0] * 5
        self.assertEqual(slopes(torch.clamp, x, low, high), [[0, 0.5, 1, 0.5, 0], [1, 0.5, 0, 0, 0], [0, 0, 0, 0.5, 1]])
        self.assertEqual(slopes(torch.clamp_min, x, low), [[0, 0.5, 1, 1, 1], [1, 0.5, 0, 0, 0]])
        self.assertEqual(slopes(lambda x, high: x.clamp(max=high), x, high), [[1, 1, 1, 0.5, 0], [0, 0, 0, 0.5, 1]])

    def test_that_meet_or_cross_lose_no_gradient(self):
        one = [1.0] * 3
        self.assertEqual(slopes(torch.clamp, [0.0, 1.0, 2.0], one, one), [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
        self.assertEqual(slopes(torch.clamp, [0.0, 1.0, 2.0], [2.0] * 3, [0.0] * 3), [[0] * 3, [0] * 3, [1] * 3])

    def test_of_losses_stop_them(self):
        y = torch.tensor([1.0], dtype=torch.float64)
        self.assertEqual(slopes(lambda a, b: F.margin_ranking_loss(a, b, y), [3.0], [3.0]), [[0], [0]])
        self.assertEqual(slopes(lambda x: F.hinge_embedding_loss(x, -y), [1.0]), [[0]])
        target = torch.tensor([0])
        self.assertEqual(slopes(lambda x: F.multi_margin_loss(x, target), [[1.0, 0.0]]), [[[0, 0]]])

    def test_of_images_count_as_outside(self):
        image = torch.arange(9.0, dtype=torch.float64).view(1, 1, 3, 3)
        (got,) = slopes(lambda g: F.grid_sample(image, g, padding_mode="border", align_corners=True),
                        [[[[-1.0, 1.0], [0.25, 0.25]]]])
        self.assertEqual(got[0][0], [[0, 0], [1, 3]])

    def test_equal_operands_share_the_gradient(self):
        a, b = [1.0, 2.0, math.nan, 3.0, math.nan], [1.0, 3.0, 1.0, math.nan, math.nan]
        self.assertEqual(slopes(torch.fmax, a, b), [[0.5, 0, 0, 1, 1], [0.5, 1, 1, 0, 0]])
        self.assertEqual(slopes(torch.fmin, a, b), [[0.5, 1, 0, 1, 1], [0.5, 0, 1, 0, 0]])


class NumbersBesideHalves(unittest.TestCase):
    """Products and quotients of half types and numbers are rounded once, at the end."""

    def check(self, got, exact, dtype):
        self.assertIs(got.dtype, dtype)
        self.assertEqual(got.tolist(), exact.to(dtype).tolist())

    def test_are_not_rounded_to_them(self):
        for dtype in (torch.float16, torch.bfloat16):
            for n in (1, 7, 300):  # one line, a tail, several vectors
                x = torch.linspace(0.01, 3, n).to(dtype)
                wide = x.double()
                for number in (70000, 1e-6, 3.3, -0.1):
                    self.check(x * number, wide * number, dtype)
                    self.check(number * x, wide * number, dtype)
                    self.check(x / number, wide / number, dtype)
                    self.check(number / x, number / wide, dtype)
                    self.check(x.clone().mul_(number), wide * number, dtype)
                    self.check(x.clone().div_(number), wide / number, dtype)
                    self.check(torch.mul(x, number, out=torch.empty_like(x)), wide * number, dtype)

    def test_may_be_tensors_without_dims(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = torch.linspace(0.01, 3, 12).to(dtype).view(3, 4).t()
            wide = x.double()
            for scale in (torch.tensor(70000.0), torch.tensor(70000), torch.tensor(1e-6, dtype=torch.float64)):
                self.check(x * scale, wide * scale.double(), dtype)
                self.check(scale * x, wide * scale.double(), dtype)
                self.check(x / scale, wide / scale.double(), dtype)
                self.check(scale / x, scale.double() / wide, dtype)
                self.check(x.clone().mul_(scale), wide * scale.double(), dtype)

    def test_beyond_them_are_infinite(self):
        x = torch.tensor([2.0, 0.0], dtype=torch.float16)
        self.assertEqual(torch.xlogy(x, 1e10).tolist(), [math.inf, 0])
        self.assertEqual(torch.xlogy(1e10, x + 2).tolist(), [math.inf, math.inf])
        self.assertEqual(torch.copysign(x, -1e10).tolist(), [-2, -0.0])
        self.assertIs(torch.xlogy(x[0], 1e10).dtype, torch.float16)

    def test_get_gradients_of_their_own_dtype(self):
        x = torch.tensor([1.0, 2.0], dtype=torch.float16, requires_grad=True)
        scale = torch.tensor(3.3, requires_grad=True)
        for product, slope in ((x * scale, 3.0), (scale * x, 3.0)):
            x.grad = scale.grad = None
            product.sum().backward()
            self.check(x.grad, torch.tensor([3.3, 3.3]), torch.float16)
            self.assertIs(scale.grad.dtype, torch.float32)
            self.assertEqual(scale.grad.item(), slope)
        x.grad = scale.grad = None
        (x / scale).sum().backward()
        self.check(x.grad, torch.tensor([1 / 3.3, 1 / 3.3]), torch.float16)
        self.assertAlmostEqual(scale.grad.item(), -3 / 3.3 ** 2, delta=1e-3)


class PowersOfTwo(unittest.TestCase):
    def test_need_not_be_numbers_of_the_dtype(self):
        for x, e, expected in ((0.0, 1000, 0.0), (2.0 ** -149, 140, 2.0 ** -9), (2.0 ** 100, -200, 2.0 ** -100),
                               (1.0, 4000, math.inf), (-1.0, -4000, -0.0), (1.0, -149, 2.0 ** -149)):
            self.assertEqual(torch.ldexp(torch.tensor([x]), torch.tensor([e])).item(), expected)
        double = torch.ldexp(torch.tensor([1e-300], dtype=torch.float64), torch.tensor([2000]))
        self.assertLess(abs(double.item() / (1e-300 * 2.0 ** 1000 * 2.0 ** 1000) - 1), 1e-15)

    def test_of_integers_keep_the_dtype_of_half_types(self):
        self.assertIs(torch.ldexp(torch.ones(2, dtype=torch.float16), torch.tensor([1, 2])).dtype, torch.float16)
        self.assertIs(torch.ldexp(torch.ones(2, dtype=torch.int64), torch.tensor([1, 2])).dtype, torch.float32)
        of_x, of_exponent = slopes(torch.ldexp, [3.0], [2.0])
        self.assertEqual(of_x, [4])
        self.assertAlmostEqual(of_exponent[0], 12 * math.log(2))


class Lists(unittest.TestCase):
    def test_of_no_dims_reduce_nothing_to_truth(self):
        x = torch.tensor([[0, 2], [3, 0]])
        for dims in ((), []):
            self.assertEqual(torch.all(x, dim=dims).tolist(), [[False, True], [True, False]])
            self.assertEqual(x.any(dim=dims, keepdim=True).tolist(), [[False, True], [True, False]])
        self.assertTrue(x.any(dim=None).item())
        self.assertIs(x.to(torch.uint8).any(dim=()).dtype, torch.uint8)
        self.assertFalse(torch.tensor(0.0).all(dim=()).item())

    def test_may_be_none_where_they_are_empty_by_default(self):
        x = torch.arange(8.0).view(1, 1, 8)
        self.assertEqual(F.avg_pool1d(x, 2, None).tolist(), [[[0.5, 2.5, 4.5, 6.5]]])
        self.assertEqual(F.avg_pool1d(x, 2, stride=None).tolist(), torch.max_pool1d(x, 2, None).sub(0.5).tolist())
        self.assertEqual(x.amax(None).item(), 7)

    def test_an_ellipsis_of_a_result_may_stand_for_no_dims(self):
        x = torch.tensor([1.0, 2.0])
        self.assertEqual(torch.einsum("i->...i", x).tolist(), [1, 2])
        self.assertEqual(torch.einsum("i,i->...", x, x).item(), 5)


class ResultsChangedInPlace(unittest.TestCase):
    def test_of_activations_that_need_their_input_alone(self):
        for f, expected in ((lambda x: F.leaky_relu(x, 0.1), [0.1, 1, 1]), (F.relu6, [0, 1, 1]),
                            (F.hardtanh, [0, 0, 1])):
            def changed(x, f=f):
                y = f(x)
                y += 1
                return y
            self.assertEqual(slopes(changed, [-1.0, 2.0, 0.5]), [expected])

    def test_of_the_forms_in_place(self):
        for f, expected in ((lambda x: F.leaky_relu_(x, 0.1), [0.1, 1, 1]),
                            (lambda x: F.leaky_relu_(x, -0.1), [-0.1, 1, 1]),
                            (lambda x: F.relu6(x, inplace=True), [0, 1, 1]), (F.hardtanh_, [0, 0, 1])):
            self.assertEqual(slopes(lambda x, f=f: f(x * 1), [-1.0, 2.0, 0.5]), [expected])


class SixteenBits(unittest.TestCase):
    def test_round_with_decimals_stays_finite(self):
        x = torch.tensor([700.0, 123.456], dtype=torch.float16)
        self.assertEqual(x.round(decimals=2).tolist(), [700.0, 123.4375])
        self.assertEqual(torch.tensor([0.75], dtype=torch.float16).round(decimals=5).tolist(), [0.75])
        self.assertEqual(torch.tensor([1234.0], dtype=torch.bfloat16).round(decimals=-2).tolist(), [1200.0])

    def test_rms_norm_has_the_epsilon_of_float32(self):
        for dtype in (torch.float16, torch.bfloat16):
            self.assertAlmostEqual(F.rms_norm(torch.full((1, 4), 0.01, dtype=dtype), (4,))[0, 0].item(), 1, places=2)


class Shapes(unittest.TestCase):
    def test_unique_orders_slices_by_the_other_dims_in_order(self):
        x = torch.tensor([[[1, 1], [3, 2]], [[5, 6], [0, 0]]])
        values, inverse = torch.unique(x, dim=2, return_inverse=True)
        self.assertEqual(values.tolist(), [[[1, 1], [2, 3]], [[6, 5], [0, 0]]])
        self.assertEqual(inverse.tolist(), [1, 0])

    def test_tensordot_keeps_the_dtype_of_integers_that_broadcast(self):
        got = torch.tensordot(torch.ones(2, 3, dtype=torch.int32), torch.ones(1, 2, dtype=torch.int32), ([1], [0]))
        self.assertIs(got.dtype, torch.int32)
        self.assertEqual(got.tolist(), [[3, 3], [3, 3]])

    def test_padding_that_no_memory_holds_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "convolution: no memory holds"):
            F.conv2d(torch.ones(1, 4, 5, 5), torch.ones(4, 4, 3, 3), stride=2**31, padding=2**31 - 1)


class Supports(unittest.TestCase):
    def test_the_distribution_function_has_a_value_at_their_edges(self):
        self.assertEqual(torch.distributions.LogNormal(0.0, 1.0).cdf(torch.tensor(0.0)).item(), 0)


if __name__ == "__main__":
    unittest.main()
