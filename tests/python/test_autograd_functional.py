"""athanor.autograd.functional: against identities in float64, and against PyTorch where a Python has it."""
import math
import os
import pickle
import sys
import tempfile
import unittest

import athanor as torch
from athanor.autograd import functional as F  # noqa: N812
from athanor.autograd import gradcheck

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import functional_cases  # noqa: E402
import peer  # noqa: E402


def double(*shape: int) -> torch.Tensor:
    return torch.tensor(functional_cases.numbers(shape, sum(shape)), dtype=torch.float64).view(shape)


class Identities(unittest.TestCase):
    def close(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.assertEqual(a.shape, b.shape)
        self.assertTrue(torch.allclose(a, b, rtol=1e-12, atol=1e-12), f"{a}\n{b}")

    def test_products_are_those_with_the_jacobian(self) -> None:
        def f(x):
            return torch.tanh(x @ x.t()) * x[:, :1]

        x, v, w = double(3, 4), double(3, 3), double(3, 4) * 2
        jacobian = F.jacobian(f, x)
        self.assertEqual(jacobian.shape, (3, 3, 3, 4))
        y, product = F.vjp(f, x, v)
        self.close(y, f(x))
        self.close(product, torch.tensordot(v, jacobian, 2))
        self.close(F.jvp(f, x, w)[1], torch.tensordot(jacobian, w, 2))

    def test_products_are_those_with_the_hessian(self) -> None:
        def f(x, y):
            return (x.exp() * y.sin().sum()).sum() + (y ** 4).prod()

        x, y, v, w = double(3), double(2, 2), double(3) + 1, double(2, 2) - 1
        hessian = F.hessian(f, (x, y))
        self.assertEqual([[tuple(h.shape) for h in row] for row in hessian],
                         [[(3, 3), (3, 2, 2)], [(2, 2, 3), (2, 2, 2, 2)]])
        expected = (hessian[0][0] @ v + torch.tensordot(hessian[0][1], w, 2),
                    hessian[1][0] @ v + torch.tensordot(hessian[1][1], w, 2))
        for product in (F.vhp, F.hvp):
            value, (a, b) = product(f, (x, y), (v, w))
            self.close(value, f(x, y))
            self.close(a, expected[0])
            self.close(b, expected[1])

    def test_known_matrices(self) -> None:
        x = double(4)
        self.close(F.jacobian(torch.exp, x), torch.diag(x.exp()))
        self.close(F.hessian(lambda x: (x ** 3).sum(), x), torch.diag(6 * x))
        a = double(4, 4)
        self.close(F.hessian(lambda x: x @ a @ x, x), a + a.t())

    def test_results_can_be_differentiated_again(self) -> None:
        x = double(3).requires_grad_()
        for f in (lambda x: F.jacobian(lambda x: x ** 3, x, create_graph=True),
                  lambda x: F.hessian(lambda x: (x ** 4).sum(), x, create_graph=True),
                  lambda x: F.jvp(lambda x: x.exp(), x, 2 * x, create_graph=True)[1],
                  lambda x: F.hvp(lambda x: (x.exp() * x[0]).sum(), x, 2 * x, create_graph=True)[1]):
            self.assertTrue(gradcheck(f, (x,)))
        self.assertFalse(F.jacobian(lambda x: x ** 3, x).requires_grad)

    def test_gradients_of_leaves_stay_as_they_are(self) -> None:
        x = torch.ones(2, requires_grad=True)
        kept = torch.ones(2, requires_grad=True)
        F.hessian(lambda x: (x * x * kept).sum(), x)
        F.vjp(lambda x: x * kept, x, torch.ones(2))
        self.assertIsNone(x.grad)
        self.assertIsNone(kept.grad)

    def test_the_input_itself_is_a_constant_where_the_function_captured_it(self) -> None:
        x = double(2)
        self.close(F.jacobian(lambda y: y * x, x), torch.diag(x))

    def test_outputs_without_elements(self) -> None:
        x = double(2, 3)
        self.assertEqual(F.jacobian(lambda x: x[:, :0], x).shape, (2, 0, 2, 3))
        self.assertEqual(F.jacobian(lambda x: x * 2, double(0)).shape, (0, 0))

    def test_outputs_in_another_order_of_memory(self) -> None:
        x = double(2, 3)
        transposed = F.jacobian(lambda x: x.t() * 2, x)
        self.close(transposed, F.jacobian(lambda x: (x.t() * 2).contiguous(), x))
        self.close(F.jacobian(lambda x: x.expand(2, 2, 3), x).sum(0), 2 * torch.eye(6, dtype=torch.float64).view(2, 3, 2, 3))

    def test_strict_names_what_does_not_depend_on_what(self) -> None:
        one = torch.ones(2)
        for message, call in (
                ("Output 0 .* does not require gradients.*strict mode", lambda: F.jacobian(lambda x: x.detach(), one, strict=True)),
                ("Output 1 .* independent of input 0.*strict mode",
                 lambda: F.jacobian(lambda x, y: (x * y, y * 2), (one, one), strict=True)),
                ("output .* independent of input 1", lambda: F.vjp(lambda x, y: x * 2, (one, one), one, strict=True)),
                ("output .* independent of input 1",
                 lambda: F.jvp(lambda x, y: x * 2, (one, one), (one, one), strict=True)),
                ("jacobian .* input 0 is independent", lambda: F.hessian(lambda x: x.sum(), one, strict=True)),
                ("hessian .* independent of input 0.*create_graph=True",
                 lambda: F.vhp(lambda x: (x * x).sum(), one, one, True, True))):
            with self.subTest(message), self.assertRaisesRegex(RuntimeError, message):
                call()
        F.hessian(lambda x: (x ** 3).sum(), one, strict=True)

    def test_errors_of_the_function_reach_the_caller_and_recording_is_as_before(self) -> None:
        def f(x):
            raise KeyError("from the function")

        for call in (F.jacobian, F.hessian, F.vjp, F.jvp, F.vhp, F.hvp):
            with torch.no_grad(), self.assertRaises(KeyError):
                call(f, torch.ones(()))
            self.assertTrue(torch.is_grad_enabled())


class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results")
            peer.run(functional_cases.__file__, "torch", path, least=(2, 0))
            with open(path, "rb") as f:
                cls.theirs = pickle.load(f)
        cls.ours = functional_cases.run(torch)

    def same(self, name: str, theirs: object, ours: object) -> None:
        if isinstance(theirs, tuple):
            self.assertIsInstance(ours, tuple, name)
            self.assertEqual(len(theirs), len(ours), name)
            for i, (a, b) in enumerate(zip(theirs, ours)):
                self.same(f"{name} [{i}]", a, b)
            return
        for part in ("shape", "dtype"):
            self.assertEqual(theirs[part], ours[part], f"{name}: {part}")
        for a, b in zip(theirs["values"], ours["values"]):
            self.assertTrue(math.isclose(a, b, rel_tol=1e-10, abs_tol=1e-12), f"{name}\n{theirs}\n{ours}")
        # Derivatives that are constant have no history here, where PyTorch may give them one.
        self.assertLessEqual(ours["grad"], theirs["grad"], f"{name}: requires_grad")

    def test_values_and_gradients(self) -> None:
        for name, theirs in self.theirs["values"].items():
            with self.subTest(name):
                if ", gradient" in name and name not in self.ours["values"]:
                    self.assertFalse(any(theirs["values"]), "no gradient here, and not zeros there")
                else:
                    self.same(name, theirs, self.ours["values"][name])

    def test_refusals_have_the_same_class(self) -> None:
        for name, theirs in self.theirs["errors"].items():
            with self.subTest(name):
                self.assertIsNotNone(theirs, "a call that PyTorch accepts is no case")
                self.assertIsNotNone(self.ours["errors"][name], "accepted here")
                self.assertEqual(self.ours["errors"][name][0], theirs[0], theirs[1])


if __name__ == "__main__":
    unittest.main()
