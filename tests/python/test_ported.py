"""What programs written for PyTorch were found to stumble over: indices, gradients, names and modules they import."""
import copy
import importlib
import unittest
import warnings

import athanor as torch
from athanor import nn

try:
    import numpy
except ImportError:
    numpy = None


class IndicesInTensors(unittest.TestCase):
    def test_an_integer_in_a_tensor_selects_a_view(self):
        x = torch.zeros(3, 2)
        for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
            row = x[torch.tensor(1, dtype=dtype)]
            self.assertEqual(row.data_ptr(), x[1].data_ptr())
        x[torch.tensor(2)].fill_(7)
        x[torch.tensor(0), torch.tensor(1)].add_(3)
        self.assertEqual(x.tolist(), [[0, 3], [0, 0], [7, 7]])
        self.assertEqual(x[torch.tensor(-1)].tolist(), [7, 7])
        self.assertEqual(x[:, torch.tensor(1)].tolist(), [3, 0, 7])
        self.assertEqual(x[torch.tensor(0), [0, 1]].tolist(), [0, 3])

    def test_assignment_and_gradients_through_them(self):
        x = torch.zeros(3, 2, dtype=torch.int64)
        x[torch.tensor(1)] = torch.tensor([1.5, 2.5])  # converted, as behind a number
        self.assertEqual(x.tolist(), [[0, 0], [1, 2], [0, 0]])
        leaf = torch.ones(3, 2, requires_grad=True)
        row = leaf[torch.tensor(2)]
        self.assertEqual(type(row.grad_fn).__name__, "SelectBackward0")
        row.sum().backward()
        self.assertEqual(leaf.grad.tolist(), [[0, 0], [0, 0], [1, 1]])

    def test_an_index_out_of_bounds_names_the_dim_of_the_tensor(self):
        x = torch.zeros(2, 5, 10)
        for key, message in (((0, 5), "index 5 is out of bounds for dimension 1 with size 5"),
                             ((0, torch.tensor(1), 15), "index 15 is out of bounds for dimension 2 with size 10"),
                             ((slice(None), slice(None), 12), "index 12 is out of bounds for dimension 2 with size 10"),
                             ((..., None, -11), "index -11 is out of bounds for dimension 2 with size 10"),
                             (torch.tensor(2), "index 2 is out of bounds for dimension 0 with size 2")):
            with self.assertRaisesRegex(IndexError, message):
                x[key]

    def test_leading_ones_of_values_do_not_count(self):
        x = torch.randn(2, 3)
        value = torch.ones(1, 1, 2, 3)
        for key in (True, torch.tensor(True), torch.tensor([0, 1]), None, ...):
            x.zero_()
            x[key] = value
            self.assertEqual(x.tolist(), torch.ones(2, 3).tolist())

    def test_no_index_at_all_is_the_whole_tensor(self):
        x = torch.zeros(2)
        x[()] = 3
        self.assertEqual(x[()].tolist(), [3, 3])
        number = torch.tensor(1.0)
        number[()] = 2
        self.assertEqual(number[()].item(), 2)

    def test_what_is_no_index(self):
        x = torch.zeros(3)
        with self.assertRaisesRegex(TypeError, "slice indices must be integers or None"):
            x["0":"1"]
        for dtype in (torch.int16, torch.int8, torch.float32):
            with self.assertRaisesRegex(IndexError, "tensors used as indices must be long, int, byte or bool"):
                x[torch.tensor([1], dtype=dtype)]
        with self.assertRaisesRegex(RuntimeError, "dtype of indices should be Long"):
            torch.take_along_dim(x, torch.tensor([0], dtype=torch.int32), 0)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_arrays_of_whole_numbers_are_places(self):
        x = torch.arange(4)
        for dtype in ("int8", "int16", "int32", "int64"):
            self.assertEqual(x[numpy.array([2, 0], dtype=dtype)].tolist(), [2, 0])
        self.assertEqual(x[numpy.array([True, False, False, True])].tolist(), [0, 3])
        self.assertEqual(x[numpy.int64(3)].item(), 3)


class Arguments(unittest.TestCase):
    def test_a_list_in_a_tensor_is_no_integer(self):
        x = torch.arange(4)
        self.assertEqual([p.tolist() for p in torch.tensor_split(x, torch.tensor([1]))], [[0], [1, 2, 3]])
        self.assertEqual(len(torch.tensor_split(x, torch.tensor(4))), 4)
        with self.assertRaises(TypeError):
            x.select(torch.tensor([0]), 0)
        self.assertEqual(x.view(2, 2).select(torch.tensor(1), 0).tolist(), [0, 2])

    def test_names_of_arguments(self):
        x = torch.arange(4)
        self.assertEqual(len(torch.tensor_split(x, sections=2)), 2)
        self.assertEqual(len(x.tensor_split(indices=[1, 2])), 3)
        self.assertIs(torch.result_type(tensor=torch.ones(1, dtype=torch.int32), other=1.0), torch.float32)
        self.assertIs(torch.result_type(scalar=1, tensor=torch.ones(1)), torch.float32)
        with self.assertRaises(TypeError):
            torch.result_type(torch.ones(1))

    def test_a_fraction_as_alpha_of_integers_is_refused_even_if_it_is_whole(self):
        x = torch.tensor([1, 2])
        for call in (torch.add, torch.sub):
            with self.assertRaisesRegex(RuntimeError, "must not be a floating point number"):
                call(x, x, alpha=1.0)
        self.assertEqual(torch.add(x.float(), x, alpha=1.0).tolist(), [2, 4])

    def test_weights_before_indices_are_exchanged_with_a_warning(self):
        weight = torch.arange(6.0).view(3, 2)
        with self.assertWarnsRegex(UserWarning, "Argument order"):
            got = nn.functional.embedding_bag(weight, torch.tensor([0, 2]), torch.tensor([0]))
        self.assertEqual(got.tolist(), [[2, 3]])

    def test_matrices_only_have_an_adjoint(self):
        self.assertEqual(torch.tensor(2.0).mT.item(), 2)
        self.assertEqual(torch.ones(2, 3).H.shape, (3, 2))
        for shape in ((2,), (2, 3, 4)):
            with self.assertRaisesRegex(RuntimeError, "only supported on matrices"):
                torch.ones(shape).H

    def test_deviations_of_integers_are_not_implemented(self):
        for call in (torch.std, torch.var):
            with self.assertRaises(NotImplementedError):
                call(torch.tensor([1, 2]))

    def test_a_list_that_holds_itself_is_refused(self):
        loop = [0]
        loop.append(loop)
        for make in (torch.tensor, torch.as_tensor):
            for data in (loop, [[1, 2], loop]):
                with self.assertRaisesRegex(TypeError, "self-referential lists are incompatible"):
                    make(data)

    def test_no_blocks_make_a_matrix_without_columns(self):
        self.assertEqual(torch.block_diag().shape, (1, 0))

    def test_storages_are_taken_by_set(self):
        source = torch.arange(4.0)
        for storage in (source.storage(), source.untyped_storage()):
            x = torch.zeros(1).set_(storage, 1, (2,), (1,))
            self.assertEqual(x.tolist(), [1, 2])
            self.assertEqual(x.data_ptr(), source[1:].data_ptr())

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_new_takes_an_array_for_values(self):
        self.assertEqual(torch.zeros(1).new(numpy.array([3, 4])).tolist(), [3, 4])


class Copies(unittest.TestCase):
    def test_a_shallow_copy_lies_in_the_same_memory(self):
        x = (torch.arange(6.0).view(2, 3).t() * 1).requires_grad_()
        x.note = ["kept"]
        for original in (x, nn.Parameter(torch.ones(2)), nn.Buffer(torch.ones(2)), x * 2):
            got = copy.copy(original)
            self.assertIsNot(got, original)
            self.assertEqual((type(got), got.data_ptr(), got.stride(), got.requires_grad, got.is_leaf),
                             (type(original), original.data_ptr(), original.stride(), original.requires_grad, True))
        self.assertIs(copy.copy(x).note, x.note)
        with torch.no_grad():
            copy.copy(x).fill_(1)
        self.assertEqual(x.sum().item(), 6)
        layer = nn.Linear(1, 1)
        self.assertIs(copy.copy(layer).weight, layer.weight)


class Gradients(unittest.TestCase):
    def test_the_grad_of_what_is_no_leaf_warns_once_it_is_missed(self):
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        with self.assertWarnsRegex(UserWarning, "not a leaf Tensor is being accessed"):
            self.assertIsNone(y.grad)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIsNone(x.grad)
            self.assertIsNone(torch.ones(1).grad)
            y.retain_grad()
            y.sum().backward()
            self.assertEqual(y.grad.tolist(), [1, 1])

    def test_backward_to_an_intermediate_result_gives_it_a_grad(self):
        x = torch.tensor([2.0], requires_grad=True)
        y = x * 3
        z = y * y
        z.backward(inputs=[y], retain_graph=True)
        self.assertEqual(y.grad.tolist(), [12])
        self.assertIsNone(x.grad)
        z.backward(inputs=[x, y])
        self.assertEqual((x.grad.tolist(), y.grad.tolist()), ([36], [24]))

    def test_a_second_backward_names_the_way_out(self):
        x = torch.ones(2, requires_grad=True)
        y = x.exp().sum()
        y.backward()
        with self.assertRaisesRegex(RuntimeError, r"backward through the graph a second time .*Specify retain_graph=True if you"):
            y.backward()

    def test_differentiating_a_once_differentiable_twice_is_an_error(self):
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 2 * x

        x = torch.tensor([3.0], requires_grad=True)
        (g,) = torch.autograd.grad(Square.apply(x) * x, x, create_graph=True)
        self.assertEqual(g.tolist(), [27])
        with self.assertRaisesRegex(RuntimeError, "differentiate twice"):
            g.backward()
        Square.apply(x).backward()
        self.assertEqual((x.grad.tolist(), x.grad.requires_grad), ([6], False))

    def test_a_module_with_full_hooks_may_be_differentiated_twice(self):
        x, y, calls = torch.rand(3, requires_grad=True), torch.rand(3), []
        loss = nn.MSELoss()
        loss.register_full_backward_hook(lambda module, grads_in, grads_out: calls.append(grads_in[0]))
        (g,) = torch.autograd.grad(loss(x, y), x, create_graph=True)
        self.assertEqual(len(calls), 1)
        (second,) = torch.autograd.grad(g.sum(), x)
        torch.testing.assert_close(second, torch.full((3,), 2 / 3))
        self.assertEqual(len(calls), 1)


class Places(unittest.TestCase):
    """Where programs look for things."""

    def test_modules_that_programs_import(self):
        for name, attribute in (("nn.modules.pixelshuffle", "PixelShuffle"), ("nn.modules.channelshuffle", "ChannelShuffle"),
                                ("nn.modules.fold", "Unfold"), ("autograd.gradcheck", "GradcheckError"), ("onnx", "export"),
                                ("vision.utils", "make_grid"), ("distributions", "Categorical"),
                                ("utils.data._utils.collate", "default_collate"),
                                ("nn.modules.utils", "consume_prefix_in_state_dict_if_present")):
            self.assertTrue(hasattr(importlib.import_module(f"athanor.{name}"), attribute), name)
        self.assertTrue(torch.autograd.gradcheck(torch.sin, torch.ones(1, dtype=torch.float64, requires_grad=True)))

    def test_an_export_is_refused_by_name(self):
        with self.assertRaisesRegex(NotImplementedError, "no ONNX exporter"):
            torch.onnx.export(nn.Linear(1, 1), torch.ones(1), "model.onnx")

    def test_a_wrappers_prefix_comes_off_the_names(self):
        wrapped = nn.Sequential()
        wrapped.add_module("module", nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
        state = wrapped.state_dict()
        nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
        self.assertEqual(list(state), list(wrapped.module.state_dict()))
        self.assertEqual(set(state._metadata), set(wrapped.module.state_dict()._metadata))
        wrapped.module.load_state_dict(state)

    def test_settings_of_backends_hold_for_a_block(self):
        for backend in (torch.backends.cudnn, torch.backends.mkldnn):
            before = backend.enabled, backend.deterministic
            with backend.flags(enabled=False, deterministic=True):
                self.assertEqual((backend.enabled, backend.deterministic), (False, True))
            self.assertEqual((backend.enabled, backend.deterministic), before)

    def test_views_say_what_they_are(self):
        x = torch.ones(2, 2)
        self.assertTrue(x[0]._is_view())
        self.assertFalse(x._is_view())
        self.assertFalse(x.clone()._is_view())

    def test_lists_are_compared_as_tensors(self):
        torch.testing.assert_allclose([1.0, 2.0], [1.0, 2.0])
        with self.assertRaises(AssertionError):
            torch.testing.assert_allclose([1.0, 2.0], [1.0, 2.5])


if __name__ == "__main__":
    unittest.main()
