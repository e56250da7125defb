"""athanor.autograd.graph: nodes, their hooks, edges, hooks on several gradients, hooks on what is saved."""
import gc
import os
import pickle
import sys
import unittest
import warnings
import weakref

import athanor as torch
from athanor.autograd import Function, backward, grad
from athanor.autograd.graph import (
    GradientEdge, Node, disable_saved_tensors_hooks, get_gradient_edge, increment_version, queue_callback,
    register_multi_grad_hook, save_on_cpu, saved_tensors_hooks,
)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import functional_cases  # noqa: E402
import nn_cases  # noqa: E402
import ranks  # noqa: E402


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True)


class Nodes(unittest.TestCase):
    def test_nodes_tell_their_names_and_inputs(self) -> None:
        x = leaf(1.0, 2.0)
        node = (x * x).sum().grad_fn
        self.assertIsInstance(node, Node)
        self.assertEqual(node.name(), "SumBackward0")
        (inner, number), = node.next_functions
        self.assertEqual((inner.name(), number), ("MulBackward0", 0))
        self.assertIs(inner.next_functions[0][0].variable, x)

    def test_metadata_lives_as_long_as_the_node(self) -> None:
        class Note:
            pass

        x = leaf(1.0, 2.0)
        y = x * 2
        y.grad_fn.metadata["note"] = note = Note()
        y.sum().backward(retain_graph=True)
        self.assertIs(y.grad_fn.metadata["note"], note)
        gone = weakref.ref(note)
        del note
        self.assertIsNotNone(gone())
        del y
        self.assertIsNone(gone())

    def test_hooks_see_and_replace_gradients(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * 3
        seen = []
        after = y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs[0].tolist(), outputs[0].tolist())))
        before = y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 10,))
        y.sum().backward(retain_graph=True)
        self.assertEqual(seen, [([30.0, 30.0], [10.0, 10.0])])
        self.assertEqual(x.grad.tolist(), [30.0, 30.0])
        before.remove()
        after.remove()
        y.grad_fn.register_hook(lambda inputs, _: (inputs[0] * 0,))
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [30.0, 30.0])
        self.assertEqual(len(seen), 1)

    def test_hooks_on_the_node_of_a_leaf(self) -> None:
        x = leaf(1.0)
        seen = []
        y = x * 2
        y.grad_fn.next_functions[0][0].register_hook(lambda inputs, outputs: seen.append((inputs, outputs[0].item())))
        y.backward()
        self.assertEqual(seen, [((), 2.0)])

    def test_wrong_results_of_hooks_are_refused(self) -> None:
        for result, error, message in (
                (3, TypeError, "expected tuple"), (("a",), TypeError, "expected Tensor"),
                ((torch.ones(2), None), RuntimeError, "incorrect number of values"),
                ((torch.ones(3),), RuntimeError, r"float32 \[2\] on cpu to float32 \[3\]"),
                ((torch.ones(2, dtype=torch.float64),), RuntimeError, "float64")):
            y = leaf(1.0, 2.0) * 2
            y.grad_fn.register_hook(lambda *_: result)
            with self.subTest(result=result), self.assertRaisesRegex(error, message):
                y.sum().backward()

    def test_errors_in_hooks_reach_the_caller(self) -> None:
        def hook(*_):
            raise KeyError("from the hook")

        y = leaf(1.0) * 2
        y.grad_fn.register_prehook(hook)
        with self.assertRaises(KeyError):
            y.backward()

    def test_hooks_may_come_and_go_while_they_run(self) -> None:
        def run(register, run_backward):
            """Of three hooks the first takes away itself and the second, and adds one that counts from then on."""
            order = []

            def first(*_):
                order.append("first")
                handles[0].remove()
                handles[1].remove()
                register(lambda *_: order.append("new"))

            handles = [register(first), register(lambda *_: order.append("second")), register(lambda *_: order.append("third"))]
            run_backward()
            run_backward()
            self.assertEqual(order, ["first", "third", "third", "new"])

        x = leaf(1.0)
        run(x.register_hook, lambda: (x * 2).backward())
        x = leaf(1.0)
        run(x.register_post_accumulate_grad_hook, lambda: (x * 2).backward())
        for register in (lambda y: y.register_hook, lambda y: y.grad_fn.register_hook, lambda y: y.grad_fn.register_prehook):
            y = leaf(1.0) * 2
            z = y * 3
            run(register(y), lambda: z.backward(retain_graph=True))

    def test_handles_outlive_their_nodes(self) -> None:
        y = leaf(1.0) * 2
        handle = y.grad_fn.register_hook(lambda *_: None)
        del y
        handle.remove()


class Edges(unittest.TestCase):
    def test_gradients_from_and_to_edges(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * 3
        z = (y * y).sum()
        edge = get_gradient_edge(y)
        self.assertIsInstance(edge, GradientEdge)
        self.assertEqual((edge.node, edge.output_nr), (y.grad_fn, 0))
        for output in (z, get_gradient_edge(z)):
            self.assertEqual(grad(output, edge, retain_graph=True)[0].tolist(), [6.0, 12.0])
            self.assertEqual(grad([output], [edge, x], retain_graph=True)[1].tolist(), [18.0, 36.0])
        backward(get_gradient_edge(z), retain_graph=True)
        self.assertEqual(x.grad.tolist(), [18.0, 36.0])
        backward(edge, torch.ones(2))
        self.assertEqual(x.grad.tolist(), [21.0, 39.0])

    def test_leaves_and_results_of_several(self) -> None:
        x = leaf(1.0, 2.0, 3.0)
        self.assertEqual(grad((x * 2).sum(), get_gradient_edge(x))[0].tolist(), [2.0, 2.0, 2.0])
        parts = x.split(2)
        self.assertEqual(grad(parts[1].sum(), [get_gradient_edge(p) for p in parts], allow_unused=True)[1].tolist(), [1.0])

    def test_edges_keep_the_graph_and_not_the_values(self) -> None:
        x = leaf(1.0, 2.0)
        edge = get_gradient_edge((x * 2).sum())
        backward(edge)
        self.assertEqual(x.grad.tolist(), [2.0, 2.0])

    def test_second_derivatives(self) -> None:
        x = leaf(2.0)
        (g,) = grad(get_gradient_edge(x ** 3), get_gradient_edge(x), create_graph=True)
        g.backward()
        self.assertEqual(x.grad.item(), 12.0)

    def test_what_cannot_be_is_refused(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * 2
        with self.assertRaisesRegex(RuntimeError, "does not require gradients"):
            get_gradient_edge(torch.ones(2))
        with self.assertRaisesRegex(RuntimeError, r"only for scalar outputs; this one has shape \[2\]"):
            backward(get_gradient_edge(y))
        with self.assertRaisesRegex(RuntimeError, "Mismatch in shape"):
            backward(get_gradient_edge(y), torch.ones(3))
        with self.assertRaisesRegex(IndexError, "there is no number 1"):
            backward(GradientEdge(y.grad_fn, 1), torch.ones(2))
        with self.assertRaisesRegex(RuntimeError, "not have been used"):
            grad(y.sum(), get_gradient_edge(leaf(1.0)))
        with self.assertRaisesRegex(RuntimeError, "materialize_grads"):
            grad(y.sum(), get_gradient_edge(leaf(1.0)), materialize_grads=True)


class SeveralGradients(unittest.TestCase):
    def test_all_are_handed_over_when_the_last_is_there(self) -> None:
        a, b, unused = leaf(1.0), leaf(2.0), leaf(3.0)
        calls = []
        handle = register_multi_grad_hook((a, b), lambda grads: calls.append([g.item() for g in grads]))
        (a * b).backward()
        (a * b).backward()
        self.assertEqual(calls, [[2.0, 1.0]] * 2)
        handle.remove()
        (a * b).backward()
        self.assertEqual(len(calls), 2)
        register_multi_grad_hook((a, b, unused), lambda grads: calls.append([None if g is None else g.item() for g in grads]))
        (a * b).backward()
        self.assertEqual(calls[2:], [[2.0, 1.0, None]])

    def test_it_is_called_before_what_comes_earlier_in_the_graph(self) -> None:
        x = leaf(1.0)
        y = x * 2
        z = y * y
        order = []
        x.register_hook(lambda g: order.append("x"))
        register_multi_grad_hook((y, z), lambda grads: order.append([g.item() for g in grads]))
        z.backward()
        self.assertEqual(order, [[4.0, 1.0], "x"])

    def test_any_is_called_with_the_first(self) -> None:
        x = leaf(1.0)
        y = x * 2
        calls = []
        register_multi_grad_hook((x, y), lambda g: calls.append(g.item()), mode="any")
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(calls, [1.0, 1.0])

    def test_a_backward_that_failed_leaves_nothing_behind(self) -> None:
        a, b = leaf(1.0), leaf(2.0)
        calls = []
        register_multi_grad_hook((a, b), lambda grads: calls.append([g.item() for g in grads]))

        def fail(_):
            raise KeyError("from the hook")

        y = b * 1
        handle = y.register_hook(fail)
        z = y + a  # a's gradient is there first
        with self.assertRaises(KeyError):
            z.backward(retain_graph=True)
        handle.remove()
        z.backward()
        self.assertEqual(calls, [[1.0, 1.0]])

    def test_edges_and_refusals(self) -> None:
        a, b = leaf(1.0), leaf(2.0)
        y = a * b
        calls = []
        register_multi_grad_hook((get_gradient_edge(y), a), lambda grads: calls.append([g.item() for g in grads]))
        y.backward()
        self.assertEqual(calls, [[1.0, 2.0]])
        with self.assertRaisesRegex(ValueError, "mode"):
            register_multi_grad_hook((a,), print, mode="some")
        with self.assertRaises(RuntimeError):
            register_multi_grad_hook((torch.ones(1),), print)

    def test_callbacks_at_the_end_of_backward(self) -> None:
        x = leaf(1.0)
        order = []
        x.register_hook(lambda g: queue_callback(lambda: order.append("end")))
        x.register_post_accumulate_grad_hook(lambda t: order.append("x"))
        (x * 2).backward()
        self.assertEqual(order, ["x", "end"])
        with self.assertRaisesRegex(RuntimeError, "no backward"):
            queue_callback(lambda: None)


class Versions(unittest.TestCase):
    def test_changes_that_the_library_did_not_see(self) -> None:
        x, y = leaf(1.0), torch.ones(1)
        for change in (y, [y]):
            z = x * y
            increment_version(change)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                z.backward()
        with torch.inference_mode():
            made_there = torch.ones(1)
        increment_version(made_there)


class Squares(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return 2 * g * y / x


def copies() -> saved_tensors_hooks:
    """Everything saved lies in a copy that is made anew for each backward."""
    return saved_tensors_hooks(lambda t: (t.clone(), t.clone().zero_()), lambda packed: packed[0].clone())


class Saved(unittest.TestCase):
    def test_what_is_saved_goes_through_the_hooks(self) -> None:
        x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
        packed, unpacked = [], []

        def pack(t):
            packed.append(t)
            return len(packed) - 1

        def unpack(i):
            unpacked.append(i)
            return packed[i] * 10

        with saved_tensors_hooks(pack, unpack):
            z = (x * y).sum()
        self.assertIs(packed[0], x)
        self.assertIs(packed[1], y)
        z.backward()
        self.assertEqual(sorted(unpacked), [0, 1])
        self.assertEqual((x.grad.tolist(), y.grad.tolist()), ([30.0, 40.0], [10.0, 20.0]))
        (x * y).sum().backward()
        self.assertEqual(len(packed), 2)

    def test_results_come_without_their_history(self) -> None:
        x = leaf(1.0, 2.0)
        kept = []
        with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            y = x.exp()
        self.assertFalse(kept[0].requires_grad)
        gone = weakref.ref(y.grad_fn.metadata.setdefault("note", type("Note", (), {})()))
        kept.clear()
        del y
        self.assertIsNone(gone(), "a hook that returns its argument must not keep the graph alive")

    def test_the_innermost_counts_and_each_thread_has_its_own(self) -> None:
        x = leaf(2.0)
        calls = []
        outer = saved_tensors_hooks(lambda t: calls.append("outer") or t, lambda t: t)
        with outer:
            x.exp()
            with saved_tensors_hooks(lambda t: calls.append("inner") or t, lambda t: t):
                x.exp()
                ranks_of_threads = []
                import threading

                thread = threading.Thread(target=lambda: ranks_of_threads.append(x.exp()))
                thread.start()
                thread.join()
            x.exp()
            with outer:
                x.exp()
        x.exp()
        self.assertEqual(calls, ["outer", "inner", "outer", "outer"])

    def test_functions_of_the_programs_own(self) -> None:
        x = leaf(2.0, 3.0)
        with copies():
            y = Squares.apply(x).sum()
        y.backward()
        self.assertEqual(x.grad.tolist(), [4.0, 6.0])

    def test_gradients_of_gradients(self) -> None:
        x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        for f in (lambda x: (x ** 4).sum(), lambda x: x.exp().sum(), lambda x: Squares.apply(x * x).sum()):
            (expected,) = grad(grad(f(x), x, create_graph=True)[0].sum(), x)
            with copies():
                (first,) = grad(f(x), x, create_graph=True)
                (second,) = grad(first.sum(), x)
            self.assertTrue(torch.allclose(second, expected))

    def test_changes_in_place_of_what_was_packed_do_not_matter(self) -> None:
        x, y = leaf(2.0), torch.tensor([3.0])
        with copies():
            z = x * y
        y.zero_()
        z.backward()
        self.assertEqual(x.grad.item(), 3.0)

    def test_each_backward_unpacks_anew(self) -> None:
        x = leaf(2.0)
        count = []
        with saved_tensors_hooks(lambda t: t.clone(), lambda t: count.append(1) or t):
            y = x.exp()
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(len(count), 2)
        with self.assertRaisesRegex(RuntimeError, "second time"):
            y.backward()

    def test_what_was_packed_is_given_up_with_the_graph(self) -> None:
        class Box:
            def __init__(self, t):
                self.t = t.detach()

        boxes = []

        def pack(t):
            box = Box(t)
            boxes.append(weakref.ref(box))
            return box

        x = leaf(2.0)
        with saved_tensors_hooks(pack, lambda box: box.t):
            y = x.exp()
            z = x.exp()
        y.backward()
        del z
        gc.collect()
        self.assertEqual([b() for b in boxes], [None, None])

    def test_errors(self) -> None:
        x = leaf(1.0, 2.0)

        def backward_of(pack, unpack):
            with saved_tensors_hooks(pack, unpack):
                y = (x * x).sum()
            y.backward()

        def fail(_):
            raise KeyError("from the hook")

        with self.assertRaises(KeyError):
            backward_of(fail, lambda t: t)
        with self.assertRaises(KeyError):
            backward_of(lambda t: t, fail)
        with self.assertRaisesRegex(RuntimeError, "pack hook is modifying its input"):
            backward_of(lambda t: t.add_(1), lambda t: t)
        with self.assertRaisesRegex(TypeError, "unpack_hook expected to be a Tensor but got result of type int"):
            backward_of(lambda t: 3, lambda n: n)
        for wrong in (torch.ones(3), torch.ones(2, dtype=torch.float64)):
            with self.assertRaisesRegex(RuntimeError, r"was given, float32 \[2\] on cpu"):
                backward_of(lambda t: wrong, lambda t: t)
        self.assertFalse(torch.is_grad_enabled() and (x.grad is not None), "nothing of these arrived")
        with self.assertRaisesRegex(RuntimeError, "not here"), disable_saved_tensors_hooks("not here"):
            with save_on_cpu():
                pass
        with save_on_cpu(), self.assertRaisesRegex(RuntimeError, "not now"):
            with disable_saved_tensors_hooks("not now"):
                pass
        with save_on_cpu():
            (x * x).sum().backward()

    def test_every_layer_gives_the_same_with_copies(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = nn_cases.run(torch)
            with copies():
                got = nn_cases.run(torch)
        for kind in ("layers", "functions"):
            for name, value in expected[kind].items():
                with self.subTest(name):
                    self.assertEqual(pickle.dumps(value), pickle.dumps(got[kind][name]))

    def test_derivatives_of_any_order_are_the_same_with_copies(self) -> None:
        expected = functional_cases.run(torch)
        with copies():
            got = functional_cases.run(torch)
        for name, value in expected["values"].items():
            with self.subTest(name):
                self.assertEqual(value, got["values"][name])

    def test_devices_lend_their_memory_to_others(self) -> None:
        output = ranks.run_program("""
import athanor as torch
x = torch.ones(1000, 1000, device="cuda:0", requires_grad=True)
before = torch.cuda.memory_allocated(0)
with torch.autograd.graph.save_on_cpu():
    y = x
    for _ in range(8):
        y = y.exp().sin()
torch.cuda.synchronize()
print(torch.cuda.memory_allocated(0) - before < 2.5 * 4e6)
y.sum().backward()
a = x.grad.clone()
x.grad = None
y = x
for _ in range(8):
    y = y.exp().sin()
torch.cuda.synchronize()
print(torch.cuda.memory_allocated(0) - before > 10 * 4e6)
y.sum().backward()
print(bool((a == x.grad).all()), a.device)
""", devices=1)
        self.assertEqual(output.split(), ["True", "True", "True", "cuda:0"])


if __name__ == "__main__":
    unittest.main()
