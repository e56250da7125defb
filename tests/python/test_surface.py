"""Small things that PyTorch's users write: odd forms of indexing and construction, in-place methods, storages, names of nodes,
settings, assert_close."""
import copy
import pickle
import unittest

import athanor as torch

try:
    import numpy
except ImportError:
    numpy = None


class Indexing(unittest.TestCase):
    def test_an_ellipsis_alone_is_a_view_of_a_tensor_without_dims(self):
        x = torch.tensor(5.0)
        for key in (..., ()):
            view = x[key]
            self.assertEqual((view.item(), view.shape), (5.0, ()))
            self.assertIsNot(view, x)
            view.add_(1)
            self.assertEqual(x.item(), 6.0)
            x[key] = 5
        leaf = torch.tensor(2.0, requires_grad=True)
        (leaf[...] * 3).backward()
        self.assertEqual(leaf.grad.item(), 3.0)

    def test_a_list_of_sequences_or_tensors_is_a_tuple(self):
        x = torch.arange(12).reshape(3, 4)
        self.assertEqual(x[[[0, 1], [1, 0]]].tolist(), [1, 4])
        self.assertEqual(x[[torch.tensor(0), torch.tensor(1)]].item(), 1)
        self.assertEqual(x[[[0, 2]]].tolist(), x[[0, 2]].tolist())
        x[[[0, 1], [1, 0]]] = -1
        self.assertEqual(x[:2].tolist(), [[0, -1, 2, 3], [-1, 5, 6, 7]])

    def test_a_range_is_a_list_of_places(self):
        self.assertEqual(torch.arange(5)[range(1, 4, 2)].tolist(), [1, 3])
        self.assertEqual(torch.arange(5)[range(0)].tolist(), [])

    def test_what_is_put_at_places_has_their_dtype(self):
        x = torch.zeros(3, dtype=torch.int64)
        for key, value in (([0], torch.tensor(1.5)), ([0, 1], torch.tensor([1.5, 2.5])), (x == 0, torch.ones(3)),
                           ((None, [0]), torch.tensor([1], dtype=torch.int32))):
            with self.assertRaisesRegex(RuntimeError, "source and destination dtypes match"):
                x[key] = value
        self.assertEqual(x.tolist(), [0, 0, 0])
        x[x == 0] = torch.tensor([1.5])  # one number for a mask is filled in
        self.assertEqual(x.tolist(), [1, 1, 1])
        x[1:] = torch.tensor([2.5, 3.5])
        x[[0]] = 4.5
        self.assertEqual(x.tolist(), [4, 2, 3])

    def test_a_string_is_no_index(self):
        with self.assertRaises(TypeError):
            torch.ones(2)["a"]


class Construction(unittest.TestCase):
    def test_tensors_of_one_element_inside_a_list_are_numbers(self):
        self.assertEqual(torch.tensor([torch.tensor([1]), torch.tensor([[2]])]).tolist(), [1, 2])
        self.assertEqual(torch.tensor([[1.0, 2.0], torch.ones(2)]).tolist(), [[1, 2], [1, 1]])
        with self.assertRaisesRegex(ValueError, "only one element tensors can be converted to Python scalars"):
            torch.tensor([torch.ones(2)])
        with self.assertRaisesRegex(TypeError, "only integer tensors of a single element"):
            torch.tensor([torch.tensor([1, 2])])

    def test_bad_data_raises_what_torch_raises(self):
        with self.assertRaisesRegex(RuntimeError, "Could not infer dtype of NoneType"):
            torch.tensor(None)
        with self.assertRaisesRegex(ValueError, "Overflow when unpacking long long"):
            torch.tensor(2**63)
        with self.assertRaisesRegex(TypeError, "data must be a sequence"):
            torch.Tensor(1.5)
        with self.assertRaises(ValueError):
            torch.cat([])

    def test_large_integers_are_floats_where_floats_are_asked_for(self):
        self.assertEqual(torch.tensor([2**70], dtype=torch.float64).item(), 2.0**70)

    def test_negative_bytes_wrap_as_far_as_they_fit(self):
        self.assertEqual(torch.tensor([-1], dtype=torch.uint8).item(), 255)
        for value in (-300, 256):
            with self.assertRaises(RuntimeError):
                torch.tensor([value], dtype=torch.uint8)

    def test_scalar_tensor_is_of_the_default_dtype(self):
        self.assertIs(torch.scalar_tensor(3).dtype, torch.float32)
        self.assertIs(torch.scalar_tensor(3, dtype=torch.int32).dtype, torch.int32)

    def test_normal_refuses_negative_deviations(self):
        for call in (lambda: torch.normal(torch.zeros(2), torch.tensor([1.0, -1.0])), lambda: torch.normal(0.0, -torch.ones(2))):
            with self.assertRaisesRegex(RuntimeError, "normal expects all elements of std >= 0.0"):
                call()
        self.assertEqual(torch.normal(torch.zeros(0), torch.zeros(0)).shape, (0,))

    def test_factories_write_to_out(self):
        out = torch.empty(0)
        memory = torch.full((2, 3), 9.0)
        for make, shape in (
            (lambda out: torch.zeros(2, 3, out=out), (2, 3)), (lambda out: torch.ones((4,), out=out), (4,)),
            (lambda out: torch.full((2,), 7, out=out), (2,)), (lambda out: torch.arange(5, out=out), (5,)),
            (lambda out: torch.linspace(0, 1, 3, out=out), (3,)), (lambda out: torch.eye(2, out=out), (2, 2)),
            (lambda out: torch.randn(2, 2, out=out), (2, 2)), (lambda out: torch.randperm(4, out=out), (4,)),
            (lambda out: torch.randint(3, (2,), out=out), (2,)), (lambda out: torch.empty(1, 2, out=out), (1, 2)),
        ):
            self.assertIs(make(out), out)
            self.assertEqual((out.shape, out.dtype), (shape, torch.float32))
        self.assertEqual(torch.arange(3, out=out).tolist(), [0, 1, 2])
        for fill in (lambda out: torch.arange(6, out=out), lambda out: torch.linspace(0, 5, 6, out=out)):
            self.assertEqual(fill(torch.zeros(2, 3)).tolist(), [[0, 1, 2], [3, 4, 5]])  # as many: the shape stays
            self.assertEqual(fill(torch.zeros(3, 2).t()).tolist(), [[0, 1, 2], [3, 4, 5]])
            self.assertEqual(fill(torch.zeros(5).resize_(0)).tolist(), [0, 1, 2, 3, 4, 5])
        torch.zeros(2, 3, out=memory)
        self.assertEqual(memory.tolist(), [[0] * 3] * 2)
        with self.assertRaisesRegex(RuntimeError, "does not match dtype of out"):
            torch.zeros(2, out=out, dtype=torch.int32)

    def test_several_results_are_written_to_out(self):
        x = torch.tensor([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]])
        values, indices = torch.empty(0), torch.empty(0, dtype=torch.int64)
        for name, arguments in (("max", (1,)), ("min", (0, True)), ("sort", ()), ("topk", (2,)), ("kthvalue", (2,)),
                                ("median", (1,)), ("nanmedian", (1,)), ("mode", ()), ("cummax", (1,)), ("cummin", (1,))):
            made = getattr(torch, name)(x, *arguments)
            written = getattr(torch, name)(x, *arguments, out=(values, indices))
            self.assertIs(type(written), type(made), name)
            self.assertIs(written.values, values)
            self.assertIs(written.indices, indices)
            self.assertTrue(torch.equal(values, made.values) and torch.equal(indices, made.indices), name)
        least, most = torch.aminmax(x, out=[values, torch.empty(0)])
        self.assertEqual((least.item(), most.item()), (1, 9))
        with self.assertRaisesRegex(TypeError, "argument 'out' must be tuple of 2 Tensors, got 1"):
            torch.sort(x, out=(values,))
        with self.assertRaises(TypeError):
            torch.sort(x, out=values)
        with self.assertRaisesRegex(RuntimeError, "out= has dtype float32 at place 1, but the result has int64"):
            torch.sort(x, out=(values, torch.empty(0)))

    def test_memory_formats_and_generators_of_what_is_made(self):
        x = torch.ones(2, 3, 4, 5)
        last = (60, 1, 15, 3)
        self.assertEqual(torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride(), last)
        self.assertEqual(torch.empty(size=(2,), dtype=torch.int32).dtype, torch.int32)
        for make in (torch.rand_like, torch.randn_like, lambda x, **k: torch.randint_like(x, 2, 9, **k)):
            made = make(x, memory_format=torch.channels_last, dtype=torch.float64, requires_grad=True)
            self.assertEqual((made.stride(), made.dtype, made.requires_grad), (last, torch.float64, True))
            drawn = [make(x, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (3, 3, 4)]
            self.assertEqual(drawn[0], drawn[1])
            self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(torch.Generator(device="cpu").device, torch.device("cpu"))
        with self.assertRaises(RuntimeError):
            torch.Generator("nowhere")
        self.assertLess(torch.randint_like(x, 3).max().item(), 3)
        self.assertEqual(torch.randint_like(x, low=5, high=6).unique().tolist(), [5])

    def test_what_is_made_of_other_ops_is_written_to_out(self):
        x, places = torch.tensor([[3.0, 1.0], [2.0, 5.0]]), torch.tensor([[1, 0]])
        for name, arguments in (
            ("all", (x,)), ("any", (x,)), ("argsort", (x,)), ("bernoulli", ((x > 2).float(),)), ("concat", ([x, x],)), ("copysign", (x, -1)),
            ("dstack", ([x],)), ("float_power", (x, 2)), ("hstack", ([x, x],)), ("inner", (x, x)), ("inverse", (x,)),
            ("kron", (x, x)), ("matrix_power", (x, 2)), ("max", (x,)), ("mean", (x,)), ("min", (x,)), ("nonzero", (x,)),
            ("polygamma", (1, x)), ("renorm", (x, 1, 0, 1)), ("row_stack", ([x],)), ("threshold", (x, 2, 0)),
            ("scatter_reduce", (x, 0, places, x, "sum")), ("slice_scatter", (x, x[:1], 0, 1)), ("vstack", ([x, x],)),
            ("take_along_dim", (x, places, 0)), ("index_copy", (x, 0, places[0], x)), ("cross", (x.new_ones(3), x.new_ones(3))),
            ("index_reduce", (x, 0, places[0], x, "prod")), ("linalg.inv", (x,)), ("linalg.det", (x,)),
            ("linalg.solve", (x, x)), ("linalg.multi_dot", ([x, x],)), ("linalg.matrix_power", (x, 3)),
            ("linalg.cholesky", (x @ x.t(),)), ("linalg.cross", (x.new_ones(3), x.new_ones(3))),
        ):
            function = getattr(torch.linalg if "." in name else torch, name.split(".")[-1])
            made = function(*arguments)
            out = torch.empty(0, dtype=made.dtype)
            self.assertIs(function(*arguments, out=out), out, name)
            self.assertTrue(torch.equal(out, made), name)
        self.assertIs(torch.multinomial(x, 1, out=places), places)
        with self.assertRaisesRegex(RuntimeError, "don't support automatic differentiation"):
            torch.vstack([x.clone().requires_grad_()], out=torch.empty(0))

    def test_numbers_may_come_first(self):
        x, whole = torch.tensor([3.0, 4.0]), torch.tensor([5, 6], dtype=torch.int8)
        for made, values, dtype in (
            (torch.add(1, x), [4, 5], torch.float32), (torch.add(1, x, alpha=2), [7, 9], torch.float32),
            (torch.sub(1, x), [-2, -3], torch.float32), (torch.subtract(1, x), [-2, -3], torch.float32),
            (torch.mul(2, whole), [10, 12], torch.int8), (torch.multiply(0.5, whole), [2.5, 3], torch.float32),
            (torch.div(12, x), [4, 3], torch.float32), (torch.div(13, whole, rounding_mode="floor"), [2, 2], torch.int8),
            (torch.true_divide(12, x), [4, 3], torch.float32), (torch.floor_divide(7, x), [2, 1], torch.float32),
            (torch.remainder(7, x), [1, 3], torch.float32), (torch.float_power(2, x), [8, 16], torch.float64),
            (torch.bitwise_and(4, whole), [4, 4], torch.int8), (torch.bitwise_or(1, whole), [5, 7], torch.int8),
            (torch.bitwise_xor(1, whole), [4, 7], torch.int8), (torch.bitwise_left_shift(1, whole), [32, 64], torch.int8),
            (torch.bitwise_right_shift(64, whole), [2, 1], torch.int8),
        ):
            self.assertEqual((made.tolist(), made.dtype), (values, dtype))
        out = torch.empty(2)
        self.assertIs(torch.mul(2, x, out=out), out)
        self.assertEqual(out.tolist(), [6, 8])
        x.requires_grad_()
        torch.div(12, x).sum().backward()
        self.assertTrue(torch.allclose(x.grad, torch.tensor([-12 / 9, -0.75])))
        with self.assertRaises(TypeError):
            torch.fmod(7, x)

    def test_bad_values_are_errors_of_torchs_classes(self):
        x, far = torch.rand(3, 4), torch.tensor([[9]])
        for call, error in (
            (lambda: torch.nn.functional.gelu(x, approximate="bad"), RuntimeError),
            (lambda: torch.nn.functional.softshrink(x, -1.0), RuntimeError),
            (lambda: torch.div(x, x, rounding_mode="bad"), RuntimeError),
            (lambda: torch.bernoulli(x + 5), RuntimeError),
            (lambda: torch.bernoulli(x, 2.0), RuntimeError),
            (lambda: torch.multinomial(torch.tensor([1.0, -1.0]), 1), RuntimeError),
            (lambda: torch.set_num_threads(0), RuntimeError),
            (lambda: torch.gather(x, 0, far), RuntimeError),
            (lambda: x.clone().scatter_(0, far, 1.0), RuntimeError),
            (lambda: x.clone().scatter_add_(0, far, x), RuntimeError),
            (lambda: x.clone().index_add_(0, far[0], x[:1]), RuntimeError),
            (lambda: torch.nn.functional.embedding_bag(far[0], x, torch.tensor([0])), RuntimeError),
            (lambda: torch.index_select(x, 0, far[0]), IndexError),
            (lambda: x[far], IndexError),
            (lambda: torch.nn.functional.embedding(far, x), IndexError),
            (lambda: torch.nn.functional.dropout(x, 2.0), ValueError),
        ):
            with self.assertRaises(Exception) as caught:
                call()
            self.assertIs(type(caught.exception), error, caught.exception)

    def test_a_tuple_and_a_size_are_a_size(self):
        both = (1,) + torch.Size([2, 3])
        self.assertIs(type(both), torch.Size)
        self.assertEqual(both, (1, 2, 3))
        with self.assertRaises(TypeError):
            torch.Size([1]) + [2]


class Classes(unittest.TestCase):
    def test_dtypes_that_an_op_has_not_are_not_implemented(self):
        with self.assertRaises(NotImplementedError):  # a RuntimeError, too
            torch.ones(2, dtype=torch.int64).mean()

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_arrays_compare_element_by_element(self):
        x = torch.tensor([1.0, 2.0])
        for result in (x == numpy.array([1, 3]), numpy.array([1, 3]) == x):
            self.assertEqual(result.tolist(), [True, False])
        self.assertEqual((x != numpy.array([1, 3])).tolist(), [False, True])
        self.assertFalse(x == numpy.array(["a"]))
        self.assertFalse(x == [1.0, 2.0])


    def test_numbers_are_made_of_one_element(self):
        for x in (torch.ones(2), torch.ones(0)):
            for number in (int, float):
                with self.assertRaisesRegex(ValueError, "only one element tensors"):
                    number(x)
        with self.assertRaises(RuntimeError):
            torch.nn.functional.embedding(torch.tensor([0.5]), torch.ones(2, 2))
        with self.assertRaises(IndexError):
            torch.nn.functional.embedding(torch.tensor([2]), torch.ones(2, 2))

    def test_arguments_by_torch_s_names(self):
        x = torch.ones(2, 3)
        self.assertEqual(torch.swapaxes(x, axis0=0, axis1=1).shape, (3, 2))
        self.assertEqual(x.swapdims(dim0=0, dim1=1).shape, (3, 2))
        self.assertEqual(torch.zeros(3).copy_(other=x[0]).tolist(), [1, 1, 1])
        self.assertEqual(x[0].where(torch.tensor([True, False, True]), other=0.0).tolist(), [1, 0, 1])


class InPlace(unittest.TestCase):
    def test_fill_diagonal(self):
        self.assertEqual(torch.zeros(2, 3).fill_diagonal_(5).tolist(), [[5, 0, 0], [0, 5, 0]])
        self.assertEqual(torch.zeros(2, 2, 2).fill_diagonal_(1).nonzero().tolist(), [[0, 0, 0], [1, 1, 1]])
        self.assertEqual(torch.zeros(5, 2).fill_diagonal_(1, wrap=True).tolist(), [[1, 0], [0, 1], [0, 0], [1, 0], [0, 1]])
        part = torch.zeros(4, 4)
        part.t()[1:, 1:].fill_diagonal_(2)
        self.assertEqual(part.diagonal().tolist(), [0, 2, 2, 2])
        x = torch.ones(2, 2, requires_grad=True)
        (x * 3).fill_diagonal_(7).sum().backward()
        self.assertEqual(x.grad.tolist(), [[0, 3], [3, 0]])
        for sizes in ((3,), (2, 3, 2)):
            with self.assertRaises(RuntimeError):
                torch.zeros(sizes).fill_diagonal_(1)

    def test_index_put_takes_masks(self):
        x, mask = torch.zeros(2, 2), torch.tensor([[True, False], [False, True]])
        self.assertEqual(x.index_put((mask,), torch.tensor([1.0, 2.0])).tolist(), [[1, 0], [0, 2]])
        x.index_put_((mask[0], torch.tensor([1])), torch.tensor(3.0), accumulate=True)
        self.assertEqual(x.tolist(), [[0, 3], [0, 0]])

    def test_index_put_takes_a_mask_without_dims_for_all_or_nothing(self):
        x = torch.zeros(2, 2)
        self.assertIs(x.index_put_((torch.tensor(False),), torch.tensor(1.0)), x)
        self.assertEqual(x.tolist(), [[0, 0], [0, 0]])
        self.assertEqual(x.index_put((torch.tensor(True),), torch.tensor(1.0)).tolist(), [[1, 1], [1, 1]])
        x.index_put_((torch.tensor(True),), torch.tensor(2.0), accumulate=True)
        self.assertEqual(x.tolist(), [[2, 2], [2, 2]])

    def test_index_put_refuses_what_names_no_place(self):
        for x in (torch.zeros(2, 2), torch.tensor(1.0)):
            for value in (torch.tensor(1.0), torch.tensor(1.0, requires_grad=True)):
                with self.assertRaisesRegex(IndexError, "at least one index"):
                    x.index_put_((), value)
                with self.assertRaisesRegex(IndexError, "at least one index"):
                    x.index_put([], value)
        with self.assertRaisesRegex(TypeError, "element 1 in argument 0, but got NoneType"):
            torch.zeros(2, 2).index_put_((torch.tensor([0]), None), torch.tensor(1.0))
        with self.assertRaisesRegex(TypeError, "must be tuple of Tensors"):
            torch.zeros(2, 2).index_put_(torch.tensor([0]), torch.tensor(1.0))

    def test_copies_into_integers_have_no_history(self):
        x, y = torch.zeros(2, dtype=torch.int64), torch.tensor([1.5, 2.5], requires_grad=True)
        self.assertFalse(x.copy_(y).requires_grad)
        self.assertEqual(x.tolist(), [1, 2])
        z = torch.zeros(2, dtype=torch.float64).copy_(y)
        z.backward(torch.tensor([1.0, 2.0], dtype=torch.float64))
        self.assertEqual(y.grad.tolist(), [1, 2])

    def test_float_power(self):
        x = torch.tensor([2.0, 3.0], dtype=torch.float64)
        self.assertIs(x.float_power_(2), x)
        self.assertEqual(x.tolist(), [4, 9])
        self.assertEqual(x.float_power_(torch.tensor([0.5, 1.0])).tolist(), [2, 9])
        with self.assertRaisesRegex(RuntimeError, "requires dtype"):
            torch.ones(2).float_power_(2)

    def test_resize_keeps_the_storage_where_it_fits(self):
        x = torch.arange(6)
        memory = x.data_ptr()
        self.assertIs(x.resize_(2, 2), x)
        self.assertEqual((x.tolist(), x.data_ptr()), ([[0, 1], [2, 3]], memory))
        self.assertEqual(x.resize_((6,)).tolist(), [0, 1, 2, 3, 4, 5])
        self.assertEqual(x.resize_(8)[:6].tolist(), [0, 1, 2, 3, 4, 5])
        self.assertEqual(x.resize_as_(torch.zeros(1, 3)).shape, (1, 3))
        tail = torch.arange(6)[4:]
        self.assertEqual(tail.resize_(4)[:2].tolist(), [4, 5])
        with self.assertRaisesRegex(RuntimeError, "cannot resize variables that require grad"):
            torch.ones(2, requires_grad=True).resize_(3)
        with self.assertRaises(RuntimeError):
            torch.ones(2).resize_(-1)

    def test_set_takes_over_another_tensors_storage(self):
        x, y = torch.ones(2), torch.arange(6.0)
        self.assertIs(x.set_(y), x)
        x[0] = 9
        self.assertEqual((y[0].item(), x.shape), (9.0, (6,)))
        self.assertEqual(x.set_(y, 1, (2, 2), (2, 1)).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(x.set_(y.untyped_storage()).shape, (6,))
        self.assertEqual(x.set_().shape, (0,))
        with self.assertRaisesRegex(RuntimeError, "Could not set tensor of type"):
            x.set_(torch.ones(1, dtype=torch.int32))


class Storages(unittest.TestCase):
    def test_storages_are_the_memory_of_tensors(self):
        x = torch.arange(6, dtype=torch.int16)
        part = x[2:4]
        untyped, typed = part.untyped_storage(), part.storage()
        self.assertEqual((untyped.data_ptr(), untyped.nbytes(), len(untyped)), (x.data_ptr(), 12, 12))
        self.assertEqual((typed.tolist(), typed.size(), typed.dtype), ([0, 1, 2, 3, 4, 5], 6, torch.int16))
        typed[1] = 7
        self.assertEqual((x[1].item(), typed[1], untyped[2]), (7, 7, 7))
        self.assertTrue(torch.is_storage(untyped) and torch.is_storage(typed) and not torch.is_storage(x))
        self.assertEqual(typed.untyped().nbytes(), 12)
        with self.assertRaises(TypeError):
            torch.UntypedStorage(3)

    def test_copies_keep_attributes(self):
        x = torch.ones(2)
        x.note = ["a"]
        deep = copy.deepcopy(x)
        self.assertEqual((deep.note, deep.tolist()), (["a"], [1, 1]))
        self.assertIsNot(deep.note, x.note)
        self.assertEqual(pickle.loads(pickle.dumps(x)).note, ["a"])


class Graph(unittest.TestCase):
    def test_nodes_are_of_classes_of_their_names(self):
        x = torch.ones(2, requires_grad=True)
        y = (x * 2).sum()
        self.assertEqual(type(y.grad_fn).__name__, "SumBackward0")
        self.assertEqual(type(y.grad_fn.next_functions[0][0]).__name__, "MulBackward0")
        self.assertIs(type(x.sum().grad_fn), type(y.grad_fn))
        leaf = y.grad_fn.next_functions[0][0].next_functions[0][0]
        self.assertEqual(type(leaf).__name__, "AccumulateGrad")
        self.assertIs(leaf.variable, x)
        self.assertFalse(hasattr(y.grad_fn, "variable"))
        self.assertEqual(y.grad_fn, y.grad_fn)
        self.assertIsInstance(y.grad_fn, torch.autograd.graph.Node)

    def test_functions_take_keywords_for_positional_arguments(self):
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, first=1.0, second=1.0):
                ctx.factor = first * second
                return x * ctx.factor

            @staticmethod
            def backward(ctx, g):
                return (g * ctx.factor,) + (None,) * (len(ctx.needs_input_grad) - 1)

        x = torch.ones(2, requires_grad=True)
        Scale.apply(x, second=3.0).sum().backward()
        Scale.apply(x=x).sum().backward()
        self.assertEqual(x.grad.tolist(), [4, 4])
        with self.assertRaises(TypeError):
            Scale.apply(x, third=1)

        class KeywordOnly(Scale):
            @staticmethod
            def forward(ctx, x, *, k=2):
                return x * k

        with self.assertRaises(TypeError):
            KeywordOnly.apply(x, k=3)


class Names(unittest.TestCase):
    def test_settings_are_noted(self):
        torch.set_float32_matmul_precision("high")
        self.assertEqual(torch.get_float32_matmul_precision(), "high")
        torch.set_float32_matmul_precision("highest")
        with self.assertRaises(RuntimeError):
            torch.set_float32_matmul_precision("low")
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.assertTrue(torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled())
        torch.use_deterministic_algorithms(False)
        self.assertFalse(torch.are_deterministic_algorithms_enabled())
        self.assertFalse(torch.set_flush_denormal(False))

    def test_what_programs_ask_about_the_machine(self):
        self.assertIsNone(torch.version.cuda)
        self.assertEqual(torch.version.__version__, torch.__version__)
        self.assertEqual(torch.accelerator.is_available(), torch.cuda.is_available())
        self.assertFalse(torch.xpu.is_available())
        self.assertFalse(torch.compiler.is_compiling())
        self.assertEqual(torch.compiler.disable(len)([1]), 1)

    def test_functions_by_torch_s_other_names(self):
        x = torch.tensor([1.0, 2.0, 4.0])
        self.assertEqual(torch.trapz(x).item(), torch.trapezoid(x).item())
        self.assertEqual(torch.trapz(x, torch.tensor([0.0, 1.0, 3.0])).item(), 7.5)
        self.assertEqual(torch.fill(x, 2).tolist(), [2, 2, 2])
        self.assertEqual(torch.index_put(x, (torch.tensor([0]),), torch.tensor(9.0)).tolist(), [9, 2, 4])
        self.assertEqual(torch.isreal(x).tolist(), [True] * 3)
        self.assertEqual(torch.typename(x), "torch.FloatTensor")
        self.assertEqual((torch.get_device(x), torch.is_signed(x), x.is_mps), (-1, True, False))
        self.assertEqual(torch.ones(2, 3).mH.shape, (3, 2))

    def test_chain_matmul_takes_matrices_one_by_one(self):
        a, b, c = torch.ones(2, 3), torch.ones(3, 4), torch.ones(4, 1)
        self.assertEqual(torch.chain_matmul(a, b, c).tolist(), [[12], [12]])
        self.assertTrue(torch.equal(torch.chain_matmul([a, b]), a @ b))

    def test_functional_call_runs_with_given_parameters(self):
        layer = torch.nn.Linear(2, 1)
        given = {"weight": torch.tensor([[2.0, 3.0]]), "bias": torch.zeros(1)}
        self.assertEqual(torch.func.functional_call(layer, given, (torch.ones(2),)).item(), 5.0)
        self.assertEqual(torch.func.functional_call(layer, ({"weight": given["weight"]}, {"bias": given["bias"]}),
                                                    torch.ones(2)).item(), 5.0)
        with self.assertRaises(ValueError):
            torch.func.functional_call(layer, (given, given), torch.ones(2))


class AssertClose(unittest.TestCase):
    close = staticmethod(torch.testing.assert_close)

    def test_what_is_close_passes(self):
        self.close(torch.ones(3), torch.ones(3) + 1e-6)
        self.close({"a": [torch.ones(1), 2.0]}, {"a": [torch.ones(1), 2.0 + 1e-9]})
        self.close(torch.tensor([float("nan")]), torch.tensor([float("nan")]), equal_nan=True)
        self.close(torch.empty(0, 3), torch.empty(0, 3))
        self.close(1, 1)
        self.close(torch.ones(1), torch.ones(1, dtype=torch.float64), check_dtype=False)

    def test_what_differs_is_named(self):
        for a, b, text in (
            (torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]]), r"Mismatched elements: 1 / 2 \(50.0%\)\n.*1\.0 at index \(0, 1\)"),
            (torch.tensor([1]), torch.tensor([2]), "not equal"),
            (torch.ones(2), torch.ones(3), "'shape' do not match"),
            (torch.ones(1), torch.ones(1, dtype=torch.float64), "'dtype' do not match"),
            (torch.ones(2, 2), torch.ones(2, 2).t(), None),
            ({"a": 1}, {"b": 1}, "Missing keys"),
            ([1, 2], [1], "length of the sequences"),
            (torch.tensor(float("nan")), torch.tensor(float("nan")), "not close"),
            (1.0, 2.0, "Expected 2.0 but got 1.0"),
            ([torch.ones(1)], [torch.zeros(1)], r"item \[0\]"),
        ):
            if text is None:
                self.close(a, b)
                with self.assertRaisesRegex(AssertionError, "stride"):
                    self.close(a, b, check_stride=True)
                continue
            with self.assertRaisesRegex(AssertionError, text):
                self.close(a, b)
        with self.assertRaises(ValueError):
            self.close(torch.ones(1), torch.ones(1), rtol=1)
        with self.assertRaisesRegex(AssertionError, "mine: Tensor-likes"):
            self.close(torch.ones(1), torch.zeros(1), msg=lambda m: "mine: " + m)
        with self.assertRaises(TypeError):
            self.close(object(), object())



class OldForms(unittest.TestCase):
    """Numbers before tensors, as PyTorch deprecates them but takes them."""

    def test_mean_what_they_meant(self):
        x, y, v = torch.ones(2, 2), torch.full((2, 2), 3.0), torch.full((2,), 3.0)
        cases = ((lambda: torch.add(x, 2, y), 7), (lambda: x.clone().sub_(2, y), -5), (lambda: torch.addcmul(x, 2, y, y), 19),
                 (lambda: x.clone().addcdiv_(2, y, y), 3), (lambda: torch.addmm(2, x, 3, y, y), 56), (lambda: x.addmm(2, y, y), 20),
                 (lambda: torch.addr(2, x, v, v), 11), (lambda: torch.baddbmm(2, x[None], 3, y[None], y[None]), 56),
                 (lambda: torch.addmv(2, x[0], 3, y, v), 56), (lambda: torch.add(x, 2, y, out=torch.empty(0)), 7))
        for call, value in cases:
            with self.assertWarnsRegex(UserWarning, "is deprecated"):
                result = call()
            self.assertEqual(set(result.flatten().tolist()), {float(value)})

    def test_of_other_calls_are_errors(self):
        x = torch.ones(2, 2)
        for call in (lambda: torch.mul(x, 2, x), lambda: torch.addmm(x, 2, x, x), lambda: torch.add(x, x, 2), lambda: torch.rsub(x, 2, x)):
            with self.assertRaises(TypeError):
                call()


class Keywords(unittest.TestCase):
    def test_that_torch_has(self):
        x = torch.arange(4.0)
        self.assertEqual(torch.roll(x, 1, dims=None).tolist(), [3, 0, 1, 2])
        self.assertEqual(len(torch.split(tensor=x, split_size_or_sections=2)), 2)
        self.assertEqual(x.clone().resize_(size=(2,)).tolist(), [0, 1])
        self.assertEqual(x.to_dense(torch.float64).dtype, torch.float64)
        self.assertNotEqual(torch.from_dlpack(x, copy=True).data_ptr(), x.data_ptr())
        self.assertEqual(torch.from_dlpack(x, device="cpu").data_ptr(), x.data_ptr())
        self.assertEqual(x.clone().copy_(1).tolist(), [1] * 4)

    def test_what_is_no_tensor_or_flag_raises_as_in_torch(self):
        for function in (torch.is_floating_point, torch.numel, torch.is_nonzero, torch.cov, torch.norm, torch.is_signed):
            with self.assertRaisesRegex(TypeError, "must be Tensor, not int"):
                function(1)
        with self.assertRaisesRegex(TypeError, "must be Tensor, not str"):
            torch.ones(1).copy_("a")
        with self.assertRaisesRegex(RuntimeError, "requires_grad must be a bool"):
            torch.ones(1).requires_grad = 1


if __name__ == "__main__":
    unittest.main()
