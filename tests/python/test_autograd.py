"""Autograd from Python: backward, grad, Function, hooks, modes, checks."""
import threading
import unittest

import athanor as torch
from athanor.autograd import Function, grad, gradcheck, gradgradcheck


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Backward(unittest.TestCase):
    def test_vectors_need_a_gradient(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        y = x ** 2 + 3 * x
        with self.assertRaisesRegex(RuntimeError, "grad can be implicitly created only for scalar outputs"):
            y.backward()
        y.backward(torch.tensor([1.0, 1.0]))
        self.assertEqual(x.grad.tolist(), [7.0, 9.0])

    def test_gradients_add_up_until_cleared(self):
        x = torch.tensor(2.0, requires_grad=True)
        for expected in (4.0, 8.0):
            (x * x).backward()
            self.assertEqual(x.grad.item(), expected)
        x.grad.zero_()
        x.grad = None
        self.assertIsNone(x.grad)

    def test_second_derivatives(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        (g,) = grad((x ** 3).sum(), x, create_graph=True)
        g.sum().backward()
        self.assertEqual(x.grad.tolist(), [12.0, 18.0])

    def test_unused_inputs(self):
        x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        with self.assertRaises(RuntimeError):
            grad(x * 2, (x, y))
        self.assertIsNone(grad(x * 2, (x, y), allow_unused=True)[1])
        self.assertEqual(grad(x * 2, (x, y), materialize_grads=True)[1].tolist(), [0.0])

    def test_assigned_gradients_are_checked(self):
        x = torch.ones(2, requires_grad=True)
        x.grad = torch.zeros(2)
        with self.assertRaises(RuntimeError):
            x.grad = torch.zeros(3)
        with self.assertRaises(TypeError):
            x.grad = 3
        with self.assertRaises(RuntimeError):
            (x * 2).requires_grad = False

    def test_hooks_see_and_replace_gradients(self):
        x = torch.ones(2, requires_grad=True)
        seen = []
        handle = x.register_hook(lambda g: g * 2)
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t is x))
        (x * 3).sum().backward()
        self.assertEqual(x.grad.tolist(), [6.0, 6.0])
        handle.remove()
        (x * 3).sum().backward()
        self.assertEqual(x.grad.tolist(), [9.0, 9.0])
        self.assertEqual(seen, [True, True])

    def test_errors_in_hooks_reach_the_caller(self):
        x = torch.ones(2, requires_grad=True)

        def hook(g):
            raise KeyError("from the hook")

        x.register_hook(hook)
        with self.assertRaises(KeyError):
            (x * 3).sum().backward()

    def test_graph_is_visible(self):
        x = torch.ones(2, requires_grad=True)
        y = (x * 2).sum()
        self.assertEqual(y.grad_fn.name(), "SumBackward0")
        self.assertEqual(y.grad_fn.next_functions[0][0].name(), "MulBackward0")
        self.assertTrue(repr(y.grad_fn).startswith("<SumBackward0 object at"))


class Modes(unittest.TestCase):
    def test_context_managers_and_decorators(self):
        x = torch.ones(1, requires_grad=True)
        with torch.no_grad():
            self.assertFalse((x * 2).requires_grad)
            with torch.enable_grad():
                self.assertTrue((x * 2).requires_grad)

        @torch.no_grad()
        def f():
            return x * 2

        @torch.no_grad
        def g():
            return x * 2

        self.assertFalse(f().requires_grad or g().requires_grad)
        with torch.set_grad_enabled(False):
            self.assertFalse(torch.is_grad_enabled())
        self.assertTrue(torch.is_grad_enabled())
        with torch.inference_mode():
            self.assertTrue((x * 2).is_inference())

    def test_generators_switch_only_while_they_run(self):
        @torch.no_grad()
        def numbers():
            for i in range(2):
                self.assertFalse(torch.is_grad_enabled())
                yield i

        for _ in numbers():
            self.assertTrue(torch.is_grad_enabled())

    def test_modes_belong_to_their_thread(self):
        seen = []
        with torch.no_grad():
            t = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
            t.start()
            t.join()
        self.assertEqual(seen, [True])


class Functions(unittest.TestCase):
    def test_forward_and_backward_in_python(self):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = Square.apply(x)
        self.assertEqual(y.grad_fn.name(), "SquareBackward")
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [2.0, 4.0])

    def test_gradients_of_gradients(self):
        x = torch.rand(3, dtype=torch.float64, requires_grad=True)
        self.assertTrue(gradcheck(Square.apply, (x,)))
        self.assertTrue(gradgradcheck(Square.apply, (x,)))

    def test_a_wrong_gradient_is_found(self):
        class Wrong(Square):
            @staticmethod
            def backward(ctx, g):
                return g

        x = torch.rand(3, dtype=torch.float64, requires_grad=True)
        with self.assertRaises(RuntimeError):
            gradcheck(Wrong.apply, (x,))
        self.assertFalse(gradcheck(Wrong.apply, (x,), raise_exception=False))

    def test_other_arguments_and_several_results(self):
        class Scale(Function):
            @staticmethod
            def forward(ctx, x, factor, name="x"):
                ctx.factor = factor
                return x * factor, name

            @staticmethod
            def backward(ctx, g, _):
                return g * ctx.factor, None

        x = torch.ones(2, requires_grad=True)
        y, name = Scale.apply(x, 3)
        self.assertEqual(name, "x")
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [3.0, 3.0])

    def test_backward_gets_a_gradient_for_each_result(self):
        seen = []

        class Several(Function):
            @staticmethod
            def forward(ctx, x, kind):
                return kind((5, x * 2, None, x * 3))

            @staticmethod
            def backward(ctx, *grads):
                seen.append([g if g is None else g.tolist() for g in grads])
                return grads[1] * 2 + grads[3] * 3, None

        x = torch.ones(2, requires_grad=True)
        for kind in (tuple, list):
            results = Several.apply(x, kind)
            self.assertIs(type(results), kind)
            self.assertEqual((results[0], results[2]), (5, None))
            results[3].sum().backward()
            self.assertEqual(seen.pop(), [None, [0.0, 0.0], None, [1.0, 1.0]])
        self.assertEqual(x.grad.tolist(), [6.0, 6.0])

    def test_what_is_no_tensor_is_handed_through(self):
        class Count(Function):
            @staticmethod
            def forward(ctx, x):
                return x.numel()

        self.assertEqual(Count.apply(torch.ones(3, requires_grad=True)), 3)

    def test_the_node_has_what_the_context_keeps(self):
        class Scale(Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.factor = factor
                ctx.save_for_backward(x)
                return x * factor

            @staticmethod
            def backward(ctx, g):
                return g * ctx.factor, None

        x = torch.ones(2, requires_grad=True)
        node = Scale.apply(x, 3).grad_fn
        self.assertEqual((node.factor, node.saved_tensors[0] is x), (3, True))
        for other in (node, (x * 2).grad_fn):
            self.assertFalse(hasattr(other, "nothing"))

    def test_hooks_keep_size_and_dtype(self):
        for wrong, what in ((lambda g: torch.ones(3), "size"), (lambda g: g.double(), "type")):
            x = torch.ones(2, requires_grad=True)
            x.register_hook(wrong)
            with self.assertRaisesRegex(RuntimeError, f"hook has changed the {what} of value"):
                x.sum().backward()
            self.assertIsNone(x.grad)

    def test_setup_context(self):
        class Twice(Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0])

            @staticmethod
            def backward(ctx, g):
                self.assertEqual(ctx.needs_input_grad, (True,))
                return g * 2

        x = torch.ones(2, requires_grad=True)
        Twice.apply(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [2.0, 2.0])

    def test_wrong_number_of_gradients(self):
        class Few(Function):
            @staticmethod
            def forward(ctx, a, b):
                return a + b

            @staticmethod
            def backward(ctx, g):
                return g

        a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "incorrect number of gradients"):
            Few.apply(a, b).backward()

    def test_saved_tensors_that_changed_are_refused(self):
        x = torch.ones(2, requires_grad=True)
        a = x * 1
        y = Square.apply(a)
        a.add_(1)
        with self.assertRaises(RuntimeError):
            y.sum().backward()

    def test_functions_cannot_be_instantiated(self):
        with self.assertRaises(RuntimeError):
            Square()



class ManyBackwards(unittest.TestCase):
    def test_again_through_calls_that_kept_nothing(self):
        x = torch.ones(3, requires_grad=True)
        y = torch.cat([x, x.flip(0)]).sum()
        y.backward()
        y.backward()
        self.assertEqual(x.grad.tolist(), [4, 4, 4])
        z = x.exp().sum()
        z.backward()
        with self.assertRaisesRegex(RuntimeError, "backward through the graph a second time"):
            z.backward()

    def test_again_through_a_function_that_saved_no_tensors(self):
        class Threefold(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.factor = 3
                return x * 3

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.factor

        x = torch.ones(2, requires_grad=True)
        y = Threefold.apply(x).sum()
        y.backward()
        y.backward()
        self.assertEqual(x.grad.tolist(), [6, 6])

    def test_for_a_batch_of_gradients(self):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        unused = torch.ones(1, requires_grad=True)
        y = x * x
        rows, none = torch.autograd.grad(y, (x, unused), torch.eye(3), is_grads_batched=True, allow_unused=True, retain_graph=True)
        self.assertEqual(rows.tolist(), [[2, 0, 0], [0, 4, 0], [0, 0, 6]])
        self.assertIsNone(none)
        rows, = torch.autograd.grad((y, y.sum()), x, (torch.ones(2, 3), torch.ones(2)), is_grads_batched=True, create_graph=True)
        rows.sum().backward()
        self.assertEqual(x.grad.tolist(), [8, 8, 8])
        with self.assertRaises(RuntimeError):
            torch.autograd.grad(x * 2, x, torch.ones(2, 4), is_grads_batched=True)
        with self.assertRaisesRegex(RuntimeError, "same number"):
            torch.autograd.grad((x.sum(), x.sum()), x, (torch.ones(2), torch.ones(3)), is_grads_batched=True)


if __name__ == "__main__":
    unittest.main()
