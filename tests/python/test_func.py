"""Derivatives of functions as functions."""
import unittest

import athanor as torch
from athanor import func


def cube(x):
    return (x ** 3).sum()


class Gradients(unittest.TestCase):
    def test_nest(self):
        x = torch.tensor(2.0, dtype=torch.float64)
        f = func.grad(lambda x: x ** 4)
        self.assertEqual(f(x).item(), 32)
        self.assertEqual(func.grad(f)(x).item(), 48)
        self.assertEqual(func.grad(func.grad(f))(x).item(), 48)
        self.assertFalse(f(x).requires_grad)

    def test_of_arguments_in_structures(self):
        parameters = {"w": torch.tensor([1.0, 2.0]), "more": [torch.tensor(3.0)]}
        gradient, value = func.grad_and_value(lambda p, x: (p["w"] * x).sum() * p["more"][0])(parameters, torch.tensor([4.0, 5.0]))
        self.assertEqual(gradient["w"].tolist(), [12.0, 15.0])
        self.assertEqual(gradient["more"][0].item(), 14.0)
        self.assertEqual(value.item(), 42.0)
        self.assertIsNone(parameters["w"].grad)

    def test_of_several_arguments_and_with_more_results(self):
        a, b = torch.tensor(2.0), torch.tensor(3.0)
        self.assertEqual([g.item() for g in func.grad(lambda a, b: a * a * b, argnums=(0, 1))(a, b)], [12.0, 4.0])
        gradient, aux = func.grad(lambda a, b: (a * b, {"sum": a + b}), has_aux=True)(a, b)
        self.assertEqual((gradient.item(), aux["sum"].item(), aux["sum"].requires_grad), (3.0, 5.0, False))
        self.assertEqual(func.grad(lambda a, b: b * 1, argnums=0)(a, b).item(), 0.0)

    def test_pass_gradients_on_to_what_is_around(self):
        w = torch.tensor([1.0, 2.0], requires_grad=True)
        func.grad(cube)(w * 2).sum().backward()
        self.assertEqual(w.grad.tolist(), [24.0, 48.0])  # d/dw 3 (2 w)^2

    def test_wrong_calls(self):
        with self.assertRaisesRegex(RuntimeError, "no dims"):
            func.grad(lambda x: x * 2)(torch.ones(2))
        with self.assertRaisesRegex(RuntimeError, "argnums=1, but only 1"):
            func.grad(cube, argnums=1)(torch.ones(2))


class Products(unittest.TestCase):
    def test_vjp(self):
        x = torch.tensor([1.0, 2.0])
        value, product = func.vjp(lambda x: (x ** 2, x.sum()), x)
        self.assertEqual((value[0].tolist(), value[1].item()), ([1.0, 4.0], 3.0))
        (back,) = product((torch.tensor([1.0, 10.0]), torch.tensor(100.0)))
        self.assertEqual(back.tolist(), [102.0, 140.0])
        self.assertEqual(product((torch.tensor([1.0, 10.0]), torch.tensor(0.0)))[0].tolist(), [2.0, 40.0])
        with self.assertRaisesRegex(RuntimeError, "expected 2 vectors"):
            product(torch.ones(2))

    def test_jvp(self):
        value, product = func.jvp(lambda x: x ** 2, (torch.tensor([1.0, 2.0]),), (torch.tensor([1.0, 10.0]),))
        self.assertEqual((value.tolist(), product.tolist()), ([1.0, 4.0], [2.0, 40.0]))

    def test_jacobians_and_hessians(self):
        x = torch.tensor([1.0, 2.0], dtype=torch.float64)
        for jacobian in (func.jacrev, func.jacfwd):
            self.assertEqual(jacobian(lambda x: x ** 2)(x).tolist(), [[2.0, 0.0], [0.0, 4.0]])
        first, second = func.jacrev(lambda a, b: a * b, argnums=(0, 1))(x, x + 1)
        self.assertEqual((first.diagonal().tolist(), second.diagonal().tolist()), ([2.0, 3.0], [1.0, 2.0]))
        self.assertEqual(func.hessian(cube)(x).tolist(), [[6.0, 0.0], [0.0, 12.0]])
        rows = func.jacrev(lambda x: (x.sum(), x * 2))(x)
        self.assertEqual((rows[0].tolist(), rows[1].tolist()), ([1.0, 1.0], [[2.0, 0.0], [0.0, 2.0]]))


class Modules(unittest.TestCase):
    def test_gradients_by_functional_call(self):
        net = torch.nn.Linear(2, 1)
        parameters = {n: p.detach() for n, p in net.named_parameters()}
        x = torch.ones(3, 2)
        gradient = func.grad(lambda p: func.functional_call(net, p, (x,)).sum())(parameters)
        self.assertEqual((gradient["weight"].tolist(), gradient["bias"].tolist()), ([[3.0, 3.0]], [3.0]))

    def test_states_are_stacked(self):
        parameters, buffers = func.stack_module_state([torch.nn.BatchNorm1d(3) for _ in range(2)])
        self.assertEqual((parameters["weight"].shape, buffers["running_var"].shape), ((2, 3), (2, 3)))
        self.assertTrue(parameters["weight"].requires_grad)
        for wrong in ([], [torch.nn.Linear(1, 1), torch.nn.ReLU()]):
            with self.assertRaises(RuntimeError):
                func.stack_module_state(wrong)


if __name__ == "__main__":
    unittest.main()
