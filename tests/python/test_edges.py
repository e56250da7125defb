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


if __name__ == "__main__":
    unittest.main()
