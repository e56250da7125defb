"""Functions written with others: quantiles, histograms, gradient, unravel_index, nonzero_static, frexp, poisson, torch.special."""
import math
import unittest

import athanor as torch

NAN, INF = float("nan"), float("inf")


def near(test, tensor, numbers, tolerance=1e-12):
    got = tensor.detach().flatten().tolist()
    test.assertEqual(len(got), len(numbers))
    for a, b in zip(got, numbers):
        if math.isnan(b) or math.isinf(b):
            test.assertEqual(str(a), str(b))
        else:
            test.assertLessEqual(abs(a - b), tolerance * max(1, abs(b)), (got, numbers))


class Quantiles(unittest.TestCase):
    ROWS = [[3.0, 1.0, 2.0, 10.0], [0.0, NAN, 4.0, -4.0]]

    def test_lie_between_two_elements_as_the_interpolation_says(self):
        x = torch.tensor(self.ROWS[0], dtype=torch.float64)
        for how, expected in (("linear", 2.8), ("lower", 2.0), ("higher", 3.0), ("midpoint", 2.5), ("nearest", 3.0)):
            near(self, x.quantile(0.6, interpolation=how), [expected])
        near(self, torch.quantile(x, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)), [1, 2.5, 10])

    def test_of_rows_with_nan_are_nan_unless_those_are_left_out(self):
        x = torch.tensor(self.ROWS, dtype=torch.float64)
        near(self, x.quantile(0.5, dim=1), [2.5, NAN])
        near(self, torch.nanquantile(x, 0.5, 1), [2.5, 0.0])
        near(self, torch.full((2,), NAN).nanquantile(0.5), [NAN])

    def test_have_the_levels_as_their_first_dim(self):
        x, q = torch.rand(2, 3, 4), torch.tensor([0.1, 0.2])
        for dim, keepdim, shape in ((1, False, (2, 2, 4)), (-1, True, (2, 2, 3, 1)), (None, True, (2, 1, 1, 1)), (None, False, (2,))):
            self.assertEqual(torch.quantile(x, q, dim, keepdim).shape, shape)
        self.assertEqual(torch.quantile(x, 0.1, 0).shape, (3, 4))
        self.assertEqual(torch.tensor(3.0).quantile(0.3, 0).item(), 3)

    def test_have_gradients(self):
        x = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
        q = torch.tensor([0.3, 0.77], dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda a, b: torch.quantile(a, b, dim=1), (x, q)))
        self.assertTrue(torch.autograd.gradgradcheck(lambda a: torch.nanquantile(a, 0.4, dim=0), (x,)))

    def test_refuse_what_torch_refuses(self):
        x = torch.ones(3)
        for arguments, message in (((x, 2.0), r"q must be in the range \[0, 1\] but got 2"), ((x.half(), 0.5), "either float or double"),
                                   ((x, torch.ones(1, 1)), "scalar or 1D"), ((x, torch.ones(1).double()), "same dtype"),
                                   ((torch.ones(0), 0.5), "non-empty")):
            with self.assertRaisesRegex(RuntimeError, message):
                torch.quantile(*arguments)
        with self.assertRaises(TypeError):
            torch.quantile(x, "a")
        with self.assertRaises(IndexError):
            torch.quantile(x, 0.5, dim=1)
        with self.assertRaisesRegex(RuntimeError, "interpolation must be one of"):
            torch.quantile(x, 0.5, interpolation="cubic")


class Histograms(unittest.TestCase):
    def test_count_what_lies_in_each_bin_the_last_with_its_right_edge(self):
        hist, edges = torch.histogram(torch.tensor([1.0, 2.0, 1.0]), 4)
        self.assertEqual((hist.tolist(), edges.tolist()), ([2, 0, 0, 1], [1, 1.25, 1.5, 1.75, 2]))
        result = torch.tensor([0.5, 3.0, -1.0, NAN, 1.5]).histogram(torch.tensor([0.0, 1.0, 3.0]))
        self.assertEqual(result.hist.tolist(), [1, 2])
        self.assertEqual(result.bin_edges.tolist(), [0, 1, 3])
        self.assertEqual(torch.histogram(torch.ones(2), 2)[1].tolist(), [0.5, 1, 1.5])

    def test_weigh_and_become_densities(self):
        x, weight = torch.tensor([0.5, 1.5, 1.7]), torch.tensor([1.0, 2.0, 5.0])
        self.assertEqual(torch.histogram(x, 2, range=(0.0, 2.0), weight=weight).hist.tolist(), [1, 7])
        self.assertEqual(torch.histogram(x, 2, range=(0.0, 4.0), weight=weight, density=True).hist.tolist(), [0.5, 0])

    def test_of_points_have_a_dim_per_coordinate(self):
        points = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
        hist, edges = torch.histogramdd(points, bins=[3, 3], weight=torch.tensor([1.0, 2.0, 4.0, 8.0]))
        self.assertEqual(hist.tolist(), [[0, 1, 0], [2, 0, 0], [4, 0, 8]])
        self.assertEqual(len(edges), 2)
        hist, _ = torch.histogramdd(torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), [2, 2], range=[0.0, 1.0, 0.0, 1.0],
                                    density=True)
        self.assertEqual(hist.tolist(), [[2, 0], [0, 2]])

    def test_refuse_bad_bins_and_ranges(self):
        x = torch.ones(3)
        for keywords, message in ((dict(bins=0), "bins must be > 0"), (dict(bins=2, range=(2.0, 1.0)), "min should not exceed max"),
                                  (dict(bins=2, weight=torch.ones(2)), "same shape")):
            with self.assertRaisesRegex(RuntimeError, message):
                torch.histogram(x, **keywords)
        with self.assertRaisesRegex(RuntimeError, "not finite"):
            torch.histogram(torch.tensor([1.0, NAN]), 2)
        with self.assertRaises(NotImplementedError):
            torch.histogram(torch.arange(3), 2)


class Differences(unittest.TestCase):
    def test_are_exact_for_parabolas_at_uneven_places(self):
        t = torch.tensor([0.0, 1.0, 3.0, 4.5, 5.0], dtype=torch.float64)
        slope, = torch.gradient(t * t, spacing=(t,), edge_order=2)
        near(self, slope, (2 * t).tolist())
        first, = torch.gradient(t * t, spacing=(t,))
        near(self, first[[0, -1]], [1.0, 9.5])

    def test_along_several_dims(self):
        x = torch.arange(12.0).reshape(3, 4)
        down, across = torch.gradient(x, spacing=(2.0, 0.5))
        self.assertEqual((down.unique().tolist(), across.unique().tolist()), ([2], [2]))
        self.assertEqual(down.stride(), (4, 1))
        self.assertEqual(len(torch.gradient(x, dim=1)), 1)
        near(self, torch.gradient(torch.tensor([1.0, 4.0, 9.0]), edge_order=2)[0], [2, 4, 6])

    def test_have_gradients_and_refuse_short_dims(self):
        x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda a: torch.gradient(a, edge_order=2), (x,)))
        with self.assertRaisesRegex(RuntimeError, r"at least edge_order\+1"):
            torch.gradient(torch.ones(2), edge_order=2)
        with self.assertRaisesRegex(RuntimeError, "list of length 2"):
            torch.gradient(torch.ones(3), spacing=(1.0, 2.0))


class Places(unittest.TestCase):
    def test_unravelled_are_where_the_flat_tensor_has_them(self):
        x = torch.arange(24).reshape(2, 3, 4)
        places = torch.unravel_index(torch.tensor([[0, 23], [5, 7]]), x.shape)
        self.assertEqual(x[places].tolist(), [[0, 23], [5, 7]])
        self.assertEqual([p.item() for p in torch.unravel_index(torch.tensor(3), 4)], [3])
        with self.assertRaises(TypeError):
            torch.unravel_index(torch.tensor([1.0]), (2, 2))
        with self.assertRaises(ValueError):
            torch.unravel_index(torch.tensor([1]), (2, -2))

    def test_of_a_fixed_number_are_cut_or_filled_up(self):
        x = torch.tensor([1, 0, 2])
        self.assertEqual(torch.nonzero_static(x, size=4).tolist(), [[0], [2], [-1], [-1]])
        self.assertEqual(x.nonzero_static(size=1, fill_value=7).tolist(), [[0]])
        with self.assertRaises(RuntimeError):
            torch.nonzero_static(x, size=-1)


class Numbers(unittest.TestCase):
    def test_are_a_mantissa_times_a_power_of_two(self):
        numbers = [0.0, 3.0, -0.1, 1e300, 5e-324, -2.0**-1022, INF, NAN]
        mantissa, exponent = torch.frexp(torch.tensor(numbers, dtype=torch.float64))
        self.assertEqual(exponent.dtype, torch.int32)
        for x, m, e in zip(numbers, mantissa.tolist(), exponent.tolist()):
            if math.isfinite(x):
                self.assertEqual((m, e), math.frexp(x))
            else:
                self.assertEqual((str(m), e), (str(x), 0))
        self.assertEqual(torch.tensor([1e-40]).frexp().exponent.item(), math.frexp(1e-40)[1])
        self.assertEqual(torch.tensor([3.0]).bfloat16().frexp().mantissa.dtype, torch.bfloat16)
        x = torch.tensor([6.0, 0.3], requires_grad=True)
        torch.frexp(x).mantissa.sum().backward()
        self.assertEqual(x.grad.tolist(), [0.125, 2.0])
        with self.assertRaises(RuntimeError):
            torch.frexp(torch.arange(3))

    def test_of_poisson_have_their_mean_and_variance(self):
        torch.manual_seed(0)
        rates = torch.tensor([0.0, 0.5, 4.0, 12.0, 300.0])
        drawn = torch.poisson(rates.expand(20000, 5))
        self.assertEqual(drawn[:, 0].max().item(), 0)
        self.assertTrue((drawn == drawn.floor()).all() and (drawn >= 0).all())
        for rate, mean, variance in zip(rates.tolist(), drawn.mean(0).tolist(), drawn.var(0).tolist()):
            self.assertLess(abs(mean - rate), 5 * math.sqrt(rate / 20000) + 1e-9)
            self.assertLess(abs(variance - rate), 0.06 * rate + 1e-9)
        again = [torch.poisson(rates, torch.Generator().manual_seed(3)).tolist() for _ in range(2)]
        self.assertEqual(*again)
        with self.assertRaises(RuntimeError):
            torch.poisson(torch.tensor([-1.0]))
        with self.assertRaises(NotImplementedError):
            torch.poisson(torch.arange(2))


class SpecialFunctions(unittest.TestCase):
    S = torch.special

    def test_of_the_normal_distribution_hold_in_the_tails(self):
        x = torch.tensor([-40.0, -8.0, 0.0, 1.0, 9.0], dtype=torch.float64)
        near(self, self.S.ndtr(x), [0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()], 1e-13)
        # log(phi(40) / 40 * (1 - 1/40² + 3/40⁴ - 15/40⁶))
        tail = -800 - math.log(40 * math.sqrt(2 * math.pi)) + math.log1p(-1 / 1600 + 3 / 40**4 - 15 / 40**6)
        near(self, self.S.log_ndtr(x)[0], [tail], 1e-12)
        p = torch.tensor([1e-300, 1e-5, 0.3, 0.5, 0.999], dtype=torch.float64, requires_grad=True)
        near(self, self.S.log_ndtr(self.S.ndtri(p)).exp(), p.tolist(), 1e-12)
        near(self, self.S.ndtri(torch.tensor([0.0, 1.0, -1.0])), [-INF, INF, NAN])
        self.assertTrue(torch.autograd.gradcheck(self.S.ndtri, (p.detach()[2:].requires_grad_(),)))
        self.assertTrue(torch.autograd.gradcheck(self.S.log_ndtr, (torch.tensor([-9.0, -0.5, 2.0]).double().requires_grad_(),)))
        near(self, self.S.erfcx(torch.tensor([0.0, 1.0, -1.0]).double()), [1, math.e * math.erfc(1), math.e * math.erfc(-1)])
        big = 1e8
        near(self, self.S.erfcx(torch.tensor(big).double()) * big, [1 / math.sqrt(math.pi)])

    def test_of_bessel_fulfil_their_differential_equation(self):
        x = torch.tensor([0.3, 5.0, 19.9, 20.1, 300.0], dtype=torch.float64, requires_grad=True)
        near(self, self.S.i0(torch.tensor([0.0, 1.0, 2.0]).double()), [1.0, 1.2660658777520084, 2.2795853023360673])
        near(self, self.S.i1(torch.tensor([0.0, 1.0, -2.0]).double()), [0.0, 0.565159103992485, -1.5906368546373291])
        slope, = torch.autograd.grad(torch.i0(x).sum(), x)
        near(self, slope / self.S.i1(x), [1.0] * 5, 1e-11)
        near(self, self.S.i0e(x) * x.exp() / x.i0(), [1.0] * 5, 1e-12)
        near(self, self.S.i1e(-x) * x.exp() / self.S.i1(x), [-1.0] * 5, 1e-12)
        self.assertEqual(torch.i0(torch.tensor([1])).dtype, torch.float32)
        with self.assertRaises(RuntimeError):
            torch.tensor([1]).i0_()

    def test_of_entropy_and_logarithms_have_their_limits(self):
        near(self, self.S.entr(torch.tensor([-1.0, 0.0, 1.0, 0.5, NAN])), [-INF, 0, 0, 0.5 * math.log(2), NAN], 1e-6)
        self.assertEqual(self.S.entr(torch.tensor([0.5]).half()).dtype, torch.float16)
        near(self, self.S.xlog1py(torch.tensor([0.0, 0.0, 2.0]), torch.tensor([-1.0, NAN, 1.0])), [0, NAN, 2 * math.log(2)], 1e-6)
        near(self, self.S.xlog1py(2, torch.tensor([0, 1])), [0, 2 * math.log(2)], 1e-6)
        with self.assertRaises(TypeError):
            self.S.xlog1py(1, 2)
        near(self, torch.mvlgamma(torch.tensor([3.0]).double(), 2),
             [0.5 * math.log(math.pi) + math.lgamma(3) + math.lgamma(2.5)])


if __name__ == "__main__":
    unittest.main()
