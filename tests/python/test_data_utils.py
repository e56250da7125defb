"""The rest of utils: computing again in backward, TensorBoard's files."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import unittest
import warnings
import weakref

import athanor
from athanor import nn
from athanor.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential
from athanor.utils.tensorboard import SummaryWriter


class Checkpoints(unittest.TestCase):
    def test_gradients_are_those_of_the_plain_call(self) -> None:
        layer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        x = athanor.randn(3, 4)
        gradients = []
        for wants in (False, True):
            for run in (layer, lambda v: checkpoint(layer, v, use_reentrant=True),
                        lambda v: checkpoint(layer, v, use_reentrant=False)):
                layer.zero_grad()
                leaf = x.detach().clone().requires_grad_(wants)
                run(leaf).pow(2).sum().backward()
                gradients.append([p.grad.tolist() for p in layer.parameters()])
                self.assertEqual(leaf.grad is not None, wants)
                if wants:
                    gradients[-1].append(leaf.grad.tolist())
        self.assertEqual(gradients[0], gradients[1])
        self.assertEqual(gradients[0], gradients[2])
        self.assertEqual(gradients[3], gradients[4])
        self.assertEqual(gradients[3], gradients[5])

    def test_what_is_random_is_drawn_again(self) -> None:
        x = athanor.ones(1000, requires_grad=True)
        checkpoint(lambda v: nn.functional.dropout(v * v, 0.5) * v, x, use_reentrant=False).sum().backward()
        self.assertEqual(set(x.grad.tolist()), {0.0, 6.0})
        x.grad = None
        y = checkpoint(lambda v: nn.functional.dropout(v, 0.5), x)
        after = athanor.rand(1).item()
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), y.tolist())
        athanor.manual_seed(0)
        checkpoint(lambda v: nn.functional.dropout(v, 0.5), x).sum().backward()
        following = athanor.rand(1).item()
        athanor.manual_seed(0)
        nn.functional.dropout(x, 0.5)
        self.assertEqual(athanor.rand(1).item(), following)
        self.assertNotEqual(after, following)

    def test_gradients_of_gradients(self) -> None:
        def orders(run):
            x = athanor.tensor([1.0, 2.0], dtype=athanor.float64, requires_grad=True)
            w = athanor.tensor([1.5, -0.5], dtype=athanor.float64, requires_grad=True)
            y = run(lambda v: (v * v * w).sin() * w, x * x)
            first = athanor.autograd.grad(y.sum(), [x, w], create_graph=True)
            second = athanor.autograd.grad((first[0] * first[1]).sum(), [x, w], create_graph=True)
            third = athanor.autograd.grad((second[0] * second[1]).sum(), [x, w])
            return [t.tolist() for t in (*first, *second, *third)]

        for way in (True, False):
            for got, expected in zip(orders(lambda f, v: checkpoint(f, v, use_reentrant=way)), orders(lambda f, v: f(v))):
                self.assertTrue(all(abs(a - b) <= 1e-10 * abs(b) for a, b in zip(got, expected)), (got, expected))

    def test_arguments_and_results_of_any_structure(self) -> None:
        layer = nn.Linear(3, 3)
        outside = athanor.ones(3, requires_grad=True)
        x = athanor.randn(2, 3, requires_grad=True)

        def run(arguments: dict) -> dict:
            return {"result": [layer(arguments["x"]).tanh() * (outside * 2)]}

        run({"x": x})["result"][0].sum().backward()
        expected = [t.grad for t in (x, outside, layer.weight)]
        x.grad = outside.grad = layer.weight.grad = None
        checkpoint(run, {"x": x}, use_reentrant=False)["result"][0].sum().backward()
        for t, g in zip((x, outside, layer.weight), expected):
            self.assertTrue(athanor.equal(t.grad, g))

    def test_hooks_of_tensors_used_inside_and_outside_run_once(self) -> None:
        w, calls = athanor.randn(2, 2, requires_grad=True), []
        w.register_hook(lambda g: calls.append(g))
        h = w * athanor.rand(2, 2)
        checkpoint(lambda v: w * v, h, use_reentrant=False).sum().backward()
        self.assertEqual(len(calls), 1)

    def test_intermediate_results_are_not_kept_and_backward_may_be_repeated(self) -> None:
        x, count = athanor.randn(4, requires_grad=True), []

        def run(v: athanor.Tensor) -> athanor.Tensor:
            count.append(1)
            middle = v.exp()
            run.middle = weakref.ref(middle)
            return middle.sin().sum()

        y = checkpoint(run, x, use_reentrant=False)
        self.assertIsNone(run.middle())
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(len(count), 3)
        self.assertTrue(athanor.allclose(x.grad, 2 * x.exp().cos() * x.exp()))

    def test_a_second_call_that_differs_is_an_error(self) -> None:
        x, calls = athanor.ones(2, requires_grad=True), []

        def run(v: athanor.Tensor) -> athanor.Tensor:
            calls.append(1)
            return v.exp() if len(calls) == 1 else v.exp().sin()

        with self.assertRaisesRegex(CheckpointError, "different number of tensors"):
            checkpoint(run, x, use_reentrant=False).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "none of output has requires_grad=True"):
            (checkpoint(lambda v: v.detach(), x, use_reentrant=True) + x).sum().backward()

    def test_as_a_decorator_and_with_contexts(self) -> None:
        seen = []

        @contextlib.contextmanager
        def noted(name: str):
            seen.append(name)
            yield

        @checkpoint(use_reentrant=False, context_fn=lambda: (noted("first"), noted("again")))
        def run(v: athanor.Tensor, power: int = 2) -> athanor.Tensor:
            return v.exp() ** power

        x = athanor.ones(1, requires_grad=True)
        run(x, power=3).backward()
        self.assertEqual(seen, ["first", "again"])
        self.assertAlmostEqual(x.grad.item(), 3 * math.exp(3), places=3)
        with self.assertRaises(ValueError):
            checkpoint(run, x, context_fn=lambda: (noted("a"), noted("b")))

    def test_arguments_that_are_no_tensors_and_several_results(self) -> None:
        x, y = athanor.ones(2, requires_grad=True), athanor.ones(2)
        a, b = checkpoint(lambda u, factor, v, add=0: (u * factor + add, v), x, 3, y, add=1)
        self.assertEqual(a.tolist(), [4, 4])
        a.sum().backward()
        self.assertEqual(x.grad.tolist(), [3, 3])
        with athanor.no_grad():
            self.assertFalse(checkpoint(lambda u: u * 2, x).requires_grad)

    def test_gradients_of_some_tensors_only(self) -> None:
        layer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        x = athanor.randn(3, 4, requires_grad=True)
        weights = list(layer.parameters())

        def twice(v: athanor.Tensor) -> athanor.Tensor:
            return checkpoint(lambda u: layer(u) + checkpoint(layer, u), v)

        for wanted in ([x], weights, [weights[2], x], [weights[0], weights[0]]):
            expected = athanor.autograd.grad((2 * layer(x)).sum(), wanted)
            got = athanor.autograd.grad(twice(x).sum(), wanted)
            for a, b in zip(got, expected):
                self.assertTrue(athanor.allclose(a, b))
            self.assertTrue(all(t.grad is None for t in [x, *weights]))
        twice(x).sum().backward(inputs=[weights[0]])
        self.assertTrue(athanor.allclose(weights[0].grad, athanor.autograd.grad((2 * layer(x)).sum(), weights[0])[0]))
        self.assertTrue(all(t.grad is None for t in [x, *weights[1:]]))
        with self.assertRaisesRegex(RuntimeError, "not have been used in the graph"):
            athanor.autograd.grad(twice(x).sum(), athanor.ones(3, requires_grad=True))

    def test_layers_in_segments_compute_the_same(self) -> None:
        layers = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
        x = athanor.randn(2, 3)
        self.assertEqual(checkpoint_sequential(layers, 2, x).tolist(), layers(x).tolist())
        with self.assertRaisesRegex(ValueError, "9 segments of 5"):
            checkpoint_sequential(layers, 9, x)


class CheckpointParts(unittest.TestCase):
    def test_inputs_become_leaves_that_require_grad_as_before(self) -> None:
        x = athanor.ones(2, requires_grad=True) * 2
        leaf, other, kept = athanor.utils.checkpoint.detach_variable((x, athanor.ones(1), "text"))
        self.assertTrue(leaf.is_leaf and leaf.requires_grad and not other.requires_grad)
        self.assertEqual(kept, "text")
        self.assertRaises(RuntimeError, athanor.utils.checkpoint.detach_variable, [x])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            athanor.utils.checkpoint.check_backward_validity([x, 3])
            self.assertEqual(seen, [])
            athanor.utils.checkpoint.check_backward_validity([athanor.ones(1), 3])
        self.assertIn("None of the inputs have requires_grad", str(seen[0].message))


class TensorBoard(unittest.TestCase):
    def test_events_of_every_kind_are_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "runs")
            with SummaryWriter(path) as writer:
                writer.add_scalar("loss", athanor.tensor(0.5), 1)
                writer.add_scalars("both", {"a": 1, "b": 2.0}, 1)
                writer.add_histogram("weights", athanor.randn(100), 1)
                writer.add_image("image", athanor.rand(3, 4, 5))
                writer.add_image("rows", athanor.rand(4, 5, 3), dataformats="HWC")
                writer.add_text("note", "text")
            (name,) = os.listdir(path)
            with open(os.path.join(path, name), "rb") as file:
                content = file.read()
            for tag in (b"loss", b"both/a", b"weights", b"image", b"rows", b"note"):
                self.assertIn(tag, content)
            with self.assertRaises(RuntimeError):
                writer.add_scalar("late", 1.0)


if __name__ == "__main__":
    unittest.main()
