"""Numbers, tensors without dims and others together, and what is at the edge of a shape."""
import unittest

import athanor as torch
import athanor.nn.functional as F


class Bounds(unittest.TestCase):
    def test_that_are_tensors_without_dims_promote_as_such(self):
        x, low = torch.arange(3), torch.tensor(0.5, dtype=torch.float64)
        for got in (x.clamp(min=low), x.clamp(low), torch.clamp(x, low, low + 1), torch.clip(x, low), x.clamp_min(low)):
            self.assertIs(got.dtype, torch.float64)
        self.assertIs(x.clamp(max=low.half()).dtype, torch.float16)
        self.assertIs(x.clamp(min=0.5).dtype, torch.float32)
        self.assertIs(x.float().clamp(min=low).dtype, torch.float32)
        self.assertEqual(torch.tensor([True, False]).clamp(torch.tensor(True)).tolist(), [True, True])

    def test_that_are_tensors_without_dims_share_the_gradient(self):
        x = torch.arange(3.0).requires_grad_()
        x.clamp(min=torch.tensor(1.0)).sum().backward()
        self.assertEqual(x.grad.tolist(), [0, 0.5, 1])


class Weights(unittest.TestCase):
    def test_of_lerp_without_dims_promote(self):
        a, b = torch.tensor([0, 2]), torch.tensor([4, 4])
        half = torch.tensor(0.5)
        self.assertEqual(a.lerp(b, half).tolist(), [2, 3])
        self.assertIs(a.lerp(b, half.double()).dtype, torch.float64)
        self.assertIs(a.half().lerp(b.half(), half.double()).dtype, torch.float16)
        self.assertIs(a[0].half().lerp(b[0].half(), half).dtype, torch.float32)
        with self.assertRaises(RuntimeError):
            a.float().lerp(b.float(), half.double().reshape(1))
        with self.assertRaises(RuntimeError):
            a.lerp_(b, half)

    def test_of_lerp_without_dims_have_gradients(self):
        weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        torch.ones(3).lerp(torch.full((3,), 3.0), weight).sum().backward()
        self.assertEqual(weight.grad.item(), 6)
        self.assertIs(weight.grad.dtype, torch.float64)


class Products(unittest.TestCase):
    def test_with_tensors_without_dims_promote(self):
        two = torch.tensor(2, dtype=torch.float64)
        self.assertIs(torch.inner(torch.ones(3), two).dtype, torch.float32)
        self.assertIs(torch.inner(torch.arange(3), two).dtype, torch.float64)
        with self.assertRaises(RuntimeError):
            torch.inner(torch.ones(3), torch.ones(3, dtype=torch.float64))


class Nothing(unittest.TestCase):
    def test_is_chosen_by_lists_of_empty_lists(self):
        self.assertEqual(torch.zeros(3, 2)[[[]], ...].shape, (1, 0, 2))
        self.assertEqual(torch.zeros(2, 0, 3)[[], ..., torch.tensor([0])].shape, (0, 0))

    def test_of_what_shares_memory_is_asked_for_a_number(self):
        row = torch.ones(1, 3)
        x = row.expand(2, 3)
        x[:, 1] = 5
        self.assertEqual(row.tolist(), [[1, 5, 1]])
        with self.assertRaisesRegex(RuntimeError, "single memory location"):
            x[:, 1] = torch.tensor([7.0])


class Bags(unittest.TestCase):
    def test_begin_with_the_first_index(self):
        with self.assertRaisesRegex(RuntimeError, "begin with 0"):
            F.embedding_bag(torch.tensor([0, 1, 1]), torch.ones(2, 2), torch.tensor([1, 2]))


class Similarity(unittest.TestCase):
    def test_of_vectors_shorter_than_eps_knows_their_norms(self):
        x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
        y = torch.tensor([1.0, 0.0], dtype=torch.float64)
        F.cosine_similarity(x, y, 0, 10.0).backward()
        # (y / c - x (x·y) / (n c c)) / c for norms n that count as c, as PyTorch has it.
        want = [(1 / 10 - 3 * 3 / (5 * 100)) / 10, -4 * 3 / (5 * 100) / 10]
        for got, wanted in zip(x.grad.tolist(), want):
            self.assertAlmostEqual(got, wanted, places=12)
        with self.assertRaisesRegex(RuntimeError, "non-negative"):
            F.cosine_similarity(x, y, 0, -1.0)


class Quantiles(unittest.TestCase):
    def test_of_half_types_are_float32_in_an_autocast_region(self):
        x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)
        with torch.autocast("cpu"):
            self.assertIs(torch.quantile(x, 0.5).dtype, torch.float32)
            self.assertIs(torch.nanquantile(x, 0.5).dtype, torch.float32)
        with self.assertRaises(RuntimeError):
            torch.quantile(x, 0.5)


if __name__ == "__main__":
    unittest.main()
