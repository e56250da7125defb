"""Tensors from Python: construction, operators, indexing, printing, exchange, identity, errors."""
import copy
import gc
import threading
import unittest
import weakref

import athanor as torch
import ranks

try:
    import numpy
except ImportError:
    numpy = None


class Construction(unittest.TestCase):
    def test_data_decides_the_dtype(self):
        self.assertIs(torch.tensor([1, 2]).dtype, torch.int64)
        self.assertIs(torch.tensor([1, 2.5]).dtype, torch.float32)
        self.assertIs(torch.tensor([True, False]).dtype, torch.bool)
        self.assertIs(torch.tensor([True, 2]).dtype, torch.int64)
        self.assertIs(torch.tensor([]).dtype, torch.float32)
        self.assertIs(torch.tensor([[1, 2]], dtype=torch.float64).dtype, torch.float64)
        self.assertEqual(torch.tensor([[], []]).shape, (2, 0))

    def test_sizes_as_numbers_or_as_one_sequence(self):
        self.assertEqual(torch.zeros(2, 3).shape, torch.Size([2, 3]))
        self.assertEqual(torch.zeros((2, 3)).shape, torch.Size([2, 3]))
        self.assertEqual(torch.ones(torch.Size([4])).tolist(), [1.0] * 4)
        self.assertEqual(torch.zeros(size=(1, 2)).shape, (1, 2))

    def test_ragged_sequences_are_refused(self):
        with self.assertRaisesRegex(ValueError, "expected sequence of length 2 at dim 1"):
            torch.tensor([[1, 2], [3]])
        with self.assertRaises(TypeError):
            torch.tensor([[1, 2], 3])
        with self.assertRaises(TypeError):
            torch.tensor(["a"])

    def test_a_tensor_of_a_tensor_is_a_copy_and_warns(self):
        a = torch.tensor([1, 2])
        with self.assertWarns(UserWarning):
            b = torch.tensor(a)
        b[0] = 7
        self.assertEqual(a.tolist(), [1, 2])

    def test_nested_tensors_are_read(self):
        self.assertEqual(torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist(), [1.0, 2.0])

    def test_values_out_of_range_are_refused(self):
        with self.assertRaises(RuntimeError):
            torch.tensor([300], dtype=torch.uint8)

    def test_numbers_that_whole_numbers_cannot_hold_are_refused(self):
        nan, inf = float("nan"), float("inf")
        for value, dtype in ((nan, torch.int64), (1e20, torch.int64), (2.0 ** 63, torch.int64), (inf, torch.int32),
                             (300.5, torch.uint8), (-1.5, torch.uint8), (numpy.float32(nan), torch.int8), (128.0, torch.int8)):
            with self.assertRaisesRegex(RuntimeError, "cannot be converted to type .* without overflow"):
                torch.tensor([value], dtype=dtype)
        self.assertEqual(torch.tensor([255.9, 3.7], dtype=torch.uint8).tolist(), [255, 3])
        self.assertEqual(torch.tensor([-128.5, 127.9], dtype=torch.int8).tolist(), [-128, 127])
        self.assertEqual(torch.tensor([-2.0 ** 63], dtype=torch.int64).item(), -2 ** 63)
        self.assertEqual(torch.tensor([nan], dtype=torch.bool).tolist(), [True])

    def test_legacy_constructors(self):
        self.assertEqual(torch.FloatTensor(2, 3).shape, (2, 3))
        self.assertIs(torch.LongTensor([1, 2]).dtype, torch.int64)
        self.assertEqual(torch.Tensor([1, 2]).tolist(), [1.0, 2.0])
        self.assertEqual(torch.Tensor(2, 3).shape, (2, 3))
        self.assertIsInstance(torch.zeros(1), torch.FloatTensor)
        self.assertEqual(torch.zeros(1).type(), "torch.FloatTensor")
        self.assertIs(torch.zeros(1).type("torch.LongTensor").dtype, torch.int64)

    def test_random_functions_repeat_with_a_seed(self):
        torch.manual_seed(3)
        a = torch.rand(5)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(a, torch.rand(5)))
        g = torch.Generator().manual_seed(3)
        self.assertTrue(torch.equal(a, torch.rand(5, generator=g)))


class TypeInformation(unittest.TestCase):
    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_limits_are_numpys(self):
        for name in ("float16", "float32", "float64"):
            mine, reference = torch.finfo(getattr(torch, name)), numpy.finfo(name)
            for what in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution"):
                self.assertEqual(getattr(mine, what), float(str(getattr(reference, what))) if what == "resolution"
                                 else float(getattr(reference, what)), (name, what))
            self.assertEqual(mine.dtype, name)
        for name in ("uint8", "int8", "int16", "int32", "int64"):
            mine, reference = torch.iinfo(getattr(torch, name)), numpy.iinfo(name)
            self.assertEqual((mine.bits, mine.min, mine.max, mine.dtype),
                             (reference.bits, reference.min, reference.max, name))

    def test_limits_are_those_of_the_tensors(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            info = torch.finfo(dtype)
            self.assertEqual(torch.tensor(info.max, dtype=dtype).item(), info.max)
            one = torch.ones((), dtype=dtype)
            self.assertEqual((one + info.eps).item(), 1 + info.eps)
            self.assertEqual((one + info.eps / 2).item(), 1)

    def test_what_programs_print_and_compare(self):
        self.assertEqual(repr(torch.finfo()), "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
                         "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)")
        self.assertEqual(repr(torch.iinfo(torch.int8)), "iinfo(min=-128, max=127, dtype=int8)")
        self.assertEqual(repr(torch.iinfo(torch.int32)), "iinfo(min=-2.14748e+09, max=2.14748e+09, dtype=int32)")
        self.assertEqual(torch.finfo(torch.float32), torch.finfo())
        self.assertNotEqual(torch.finfo(torch.float16), torch.finfo(torch.bfloat16))

    def test_other_dtypes_are_refused(self):
        for call in (lambda: torch.finfo(torch.int32), lambda: torch.iinfo(torch.float32), lambda: torch.iinfo(torch.bool)):
            self.assertRaises(TypeError, call)

    def test_result_type_takes_tensors_and_numbers(self):
        whole, half = torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float16)
        for a, b, expected in ((whole, 1.0, torch.float32), (1.0, half, torch.float16), (whole, half, torch.float16),
                               (half, torch.tensor(1.0, dtype=torch.float64), torch.float16),
                               (torch.tensor(1), half, torch.float16), (whole, True, torch.int64), (1, 2.0, torch.float32),
                               (torch.ones(0, 3), 1, torch.float32)):
            self.assertIs(torch.result_type(a, b), expected, (a, b))


class Printing(unittest.TestCase):
    def test_forms_of_the_documents(self):
        self.assertEqual(repr(torch.tensor([5.5, 3])), "tensor([5.5000, 3.0000])")
        self.assertEqual(repr(torch.zeros(4, 3, dtype=torch.long)),
                         "tensor([[0, 0, 0],\n        [0, 0, 0],\n        [0, 0, 0],\n        [0, 0, 0]])")
        self.assertEqual(repr(torch.zeros(2, dtype=torch.double)), "tensor([0., 0.], dtype=torch.float64)")
        self.assertEqual(repr(torch.zeros(4, 3).size()), "torch.Size([4, 3])")
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        self.assertEqual(repr(x), "tensor([2., 3.], requires_grad=True)")
        self.assertEqual(repr(x * 2), "tensor([4., 6.], grad_fn=<MulBackward0>)")

    def test_print_options(self):
        before = torch._C._get_print_options()
        try:
            torch.set_printoptions(precision=2)
            self.assertEqual(repr(torch.tensor([1.23456])), "tensor([1.23])")
        finally:
            torch._C._set_print_options(*before)

    def test_scalars_take_a_format(self):
        self.assertEqual(f"{torch.tensor(1.5):.3f}", "1.500")
        self.assertEqual("{:d}".format(torch.tensor(3)), "3")


class Operators(unittest.TestCase):
    def test_numbers_on_either_side(self):
        a = torch.tensor([1.0, 2.0, 4.0])
        self.assertEqual((2 - a).tolist(), [1.0, 0.0, -2.0])
        self.assertEqual((8 / a).tolist(), [8.0, 4.0, 2.0])
        self.assertEqual((2 ** a).tolist(), [2.0, 4.0, 16.0])
        self.assertEqual((7 // torch.tensor([2, 3])).tolist(), [3, 2])
        self.assertEqual((7 % torch.tensor([2, 4])).tolist(), [1, 3])
        self.assertEqual((torch.tensor([1, 2]) + 1.5).tolist(), [2.5, 3.5])
        self.assertIs((1 + torch.tensor([1], dtype=torch.int8)).dtype, torch.int8)
        self.assertEqual((1 << torch.tensor([3])).tolist(), [8])

    def test_in_place_operators_keep_the_object(self):
        a = torch.ones(2)
        b = a
        a += 1
        a *= torch.tensor([2.0, 3.0])
        self.assertIs(a, b)
        self.assertEqual(b.tolist(), [4.0, 6.0])

    def test_comparisons(self):
        a = torch.tensor([1, 2, 3])
        self.assertEqual((a > 1).tolist(), [False, True, True])
        self.assertEqual((2 <= a).tolist(), [False, True, True])
        self.assertFalse(a == None)  # noqa: E711
        self.assertTrue(a != "x")
        self.assertIn(2, a)
        self.assertNotIn(9, a)

    def test_truth_of_one_element_only(self):
        self.assertTrue(torch.tensor([[2]]))
        self.assertFalse(torch.tensor(0.0))
        with self.assertRaisesRegex(RuntimeError, "more than one value is ambiguous"):
            bool(torch.ones(2))
        with self.assertRaisesRegex(RuntimeError, "no values is ambiguous"):
            bool(torch.ones(0))

    def test_conversions_to_numbers(self):
        self.assertEqual(int(torch.tensor(3.7)), 3)
        self.assertEqual(float(torch.tensor([2])), 2.0)
        self.assertEqual([10, 20, 30][torch.tensor(1)], 20)
        with self.assertRaises(TypeError):
            [1, 2][torch.tensor(1.0)]

    def test_unsupported_operands(self):
        with self.assertRaises(TypeError):
            torch.ones(2) + "a"
        with self.assertRaises(TypeError):
            torch.ones(2) @ 3


class Scalars(unittest.TestCase):
    def test_tensors_without_dims_keep_their_dtype_as_exponents(self):
        self.assertEqual(torch.pow(torch.tensor(2), torch.tensor(0.5, dtype=torch.float64)).dtype, torch.float64)
        self.assertEqual(torch.pow(torch.tensor(2.0), torch.tensor(2)).dtype, torch.float32)
        self.assertEqual((torch.tensor([2, 3]) ** torch.tensor(2)).dtype, torch.int64)

    def test_scalar_operands_write_to_out(self):
        x, out = torch.tensor([6.0, 7.0]), torch.empty(2)
        for function, expected in ((torch.mul, [12.0, 14.0]), (torch.add, [8.0, 9.0]), (torch.sub, [4.0, 5.0]),
                                   (torch.div, [3.0, 3.5]), (torch.remainder, [0.0, 1.0]), (torch.fmod, [0.0, 1.0]),
                                   (torch.floor_divide, [3.0, 3.0])):
            self.assertIs(function(x, 2, out=out), out)
            self.assertEqual(out.tolist(), expected, function)
        bits = torch.empty(1, dtype=torch.int64)
        self.assertEqual(torch.bitwise_and(torch.tensor([6]), 3, out=bits).tolist(), [2])

    def test_numbers_that_do_not_fit_are_refused(self):
        for act in (lambda: torch.full((2,), 300, dtype=torch.int8), lambda: torch.zeros(2, dtype=torch.int8).fill_(128),
                    lambda: torch.zeros(2).half().masked_fill(torch.ones(2, dtype=torch.bool), -1e9)):
            with self.assertRaisesRegex(RuntimeError, "value cannot be converted to type .* without overflow"):
                act()

    def test_bits_of_floating_numbers_are_not_implemented(self):
        with self.assertRaises(NotImplementedError):
            torch.bitwise_and(torch.ones(2), torch.ones(2))


class Indexing(unittest.TestCase):
    def setUp(self):
        self.a = torch.arange(24).reshape(2, 3, 4)

    def test_integers_slices_and_ellipsis(self):
        a = self.a
        self.assertEqual(a[1, 2, 3].item(), 23)
        self.assertEqual(a[0, :, 1].tolist(), [1, 5, 9])
        self.assertEqual(a[..., -1].tolist(), [[3, 7, 11], [15, 19, 23]])
        self.assertEqual(a[:, None].shape, (2, 1, 3, 4))
        self.assertEqual(a[0, ::2, 1:3].tolist(), [[1, 2], [9, 10]])

    def test_lists_masks_and_tensors(self):
        a = self.a
        self.assertEqual(a[0, [0, 2]].tolist(), [[0, 1, 2, 3], [8, 9, 10, 11]])
        self.assertEqual(a[a > 20].tolist(), [21, 22, 23])
        self.assertEqual(a[:, torch.tensor([1]), 0].tolist(), [[4], [16]])
        self.assertEqual(a[True].shape, (1, 2, 3, 4))

    def test_assignment(self):
        a = torch.zeros(3, 3)
        a[1] = 5
        a[:, 0] = torch.tensor([1.0, 2.0, 3.0])
        a[a == 5] = -1
        a[2, [1, 2]] = [7, 8]
        self.assertEqual(a.tolist(), [[1, 0, 0], [2, -1, -1], [3, 7, 8]])

    def test_errors(self):
        with self.assertRaises(IndexError):
            self.a[5]
        with self.assertRaises(IndexError):
            self.a[0, 0, 0, 0]
        with self.assertRaises(IndexError):
            torch.tensor(1)[0]
        with self.assertRaises(ValueError):
            self.a[::-1]
        with self.assertRaises(TypeError):
            self.a["x"]
        with self.assertRaises(TypeError):
            len(torch.tensor(1))
        with self.assertRaises(TypeError):
            iter(torch.tensor(1))

    def test_numbers_of_numpy_are_places(self):
        x = torch.arange(10)
        for dtype in (numpy.uint8, numpy.int8, numpy.int16, numpy.uint64):
            self.assertEqual(x[dtype(3)].item(), 3)
            self.assertEqual(x.view(2, 5)[dtype(1), dtype(2)].item(), 7)

    def test_places_beyond_64_bits(self):
        x = torch.arange(10)
        self.assertEqual(x[:2 ** 70].shape, (10,))
        self.assertEqual(x[-2 ** 70:].shape, (10,))
        self.assertEqual(x[2 ** 70:].shape, (0,))
        for wrong in (2 ** 63, 2 ** 70, (2 ** 70,)):
            with self.assertRaisesRegex(ValueError, "Overflow when unpacking long long"):
                x[wrong]
        with self.assertRaisesRegex(ValueError, "Overflow when unpacking long long"):
            x[0] = 2 ** 63

    def test_assigned_numbers_beyond_a_half_type_are_infinite(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = torch.zeros(3, dtype=dtype)
            x[0], x[1] = 1e39 if dtype is torch.bfloat16 else 1e6, -1e6 if dtype is torch.float16 else -1e39
            self.assertEqual(x.tolist(), [float("inf"), -float("inf"), 0.0])
        with self.assertRaisesRegex(RuntimeError, "without overflow"):
            torch.zeros(1)[0] = 1e300

    def test_iteration_and_unpacking(self):
        x, y = torch.tensor([[1, 2], [3, 4]])
        self.assertEqual((x.tolist(), y.tolist()), ([1, 2], [3, 4]))
        self.assertEqual([int(v) for v in torch.arange(3)], [0, 1, 2])


class Identity(unittest.TestCase):
    def test_one_object_per_tensor(self):
        p = torch.ones(2, requires_grad=True)
        (p * 3).sum().backward()
        self.assertIs(p.grad, p.grad)
        self.assertEqual(id(p.grad), id(p.grad))

    def test_attributes_survive_while_the_library_holds_the_tensor(self):
        p = torch.ones(2, requires_grad=True)
        (p * 3).sum().backward()
        p.grad.note = "kept"
        gc.collect()
        for _ in range(3):
            self.assertEqual(p.grad.note, "kept")
        w = weakref.ref(p.grad)
        p.grad = None
        gc.collect()
        self.assertIsNone(w())

    def test_subclasses_survive_in_the_graph(self):
        class Mine(torch.Tensor):
            pass

        m = torch._C._make_subclass(Mine, torch.ones(2), True)
        self.assertIsInstance(m, Mine)
        y = m * 2
        leaf = y.grad_fn.next_functions[0][0].variable
        self.assertIs(leaf, m)

    def test_as_subclass_is_recorded_as_a_view(self):
        class Mine(torch.Tensor):
            def twice(self):
                return self * 2

        x = torch.ones(2, requires_grad=True)
        mine = x.as_subclass(Mine)
        self.assertIsInstance(mine, Mine)
        self.assertEqual(mine.data_ptr(), x.data_ptr())
        mine.twice().sum().backward()
        self.assertEqual(x.grad.tolist(), [2.0, 2.0])
        self.assertIs(type(x.as_subclass(torch.Tensor)), torch.Tensor)
        for wrong in (int, 3):
            with self.assertRaises(TypeError):
                x.as_subclass(wrong)

    def test_tensors_are_hashable_by_identity(self):
        a, b = torch.ones(2), torch.ones(2)
        self.assertEqual(len({a, b, a}), 2)

    def test_deepcopy_keeps_what_belongs_to_a_leaf(self):
        p = torch.ones(2, requires_grad=True)
        (p * 3).sum().backward()
        q = copy.deepcopy(p)
        self.assertTrue(q.requires_grad)
        self.assertEqual(q.grad.tolist(), [3.0, 3.0])
        with self.assertRaises(RuntimeError):
            copy.deepcopy(p * 2)

    def test_deepcopy_keeps_what_shares_memory(self):
        a = torch.arange(6.0)
        whole, part, column, bits, wide = copy.deepcopy([a, a[2:4], a.view(2, 3).t(), a.view(torch.int32), a[1].expand(3)])
        whole.copy_(torch.tensor([0.0, 10, 20, 30, 40, 50]))
        self.assertEqual(part.tolist(), [20.0, 30.0])
        self.assertEqual(column.tolist(), [[0.0, 30.0], [10.0, 40.0], [20.0, 50.0]])
        self.assertEqual(bits.view(torch.float32).tolist(), whole.tolist())
        self.assertEqual((wide.tolist(), wide.stride()), ([10.0] * 3, (0,)))
        self.assertEqual(a.tolist(), [0.0, 1, 2, 3, 4, 5])
        for t in (torch.tensor(3), torch.empty(0, 3), torch.randn(4, 6).t(), torch.zeros(2, dtype=torch.bool)):
            other = copy.deepcopy(t)
            self.assertTrue(torch.equal(other, t))
            self.assertEqual(other.stride(), t.stride())
        self.assertIsNone(copy.deepcopy(a)._base)

    def test_shared_memory_needs_no_import(self):
        t = torch.arange(3)
        self.assertFalse(t.is_shared())
        self.assertIs(t.share_memory_(), t)
        self.assertTrue(t.is_shared())
        self.assertEqual(t.tolist(), [0, 1, 2])

    def test_tensors_die_in_any_thread(self):
        kept = [torch.ones(10) for _ in range(100)]
        threads = [threading.Thread(target=lambda: [kept.pop() for _ in range(25)]) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(kept, [])


@unittest.skipIf(numpy is None, "NumPy is not installed")
class NumPy(unittest.TestCase):
    def test_from_numpy_shares_memory(self):
        n = numpy.arange(6).reshape(2, 3)
        t = torch.from_numpy(n)
        t += 1
        self.assertEqual(n.tolist(), [[1, 2, 3], [4, 5, 6]])
        t2 = torch.from_numpy(n[:, ::2])
        self.assertEqual(t2.stride(), (3, 2))

    def test_numpy_shares_memory_and_keeps_it_alive(self):
        t = torch.zeros(2, 3)
        n = t.t().numpy()
        t[0, 1] = 5
        del t
        self.assertEqual(n[1, 0], 5)
        self.assertEqual(n.dtype, numpy.float32)

    def test_what_cannot_be_shared(self):
        with self.assertRaises(ValueError):
            torch.from_numpy(numpy.arange(4)[::-1])
        with self.assertRaises(TypeError):
            torch.from_numpy([1, 2])
        with self.assertRaises(TypeError):
            torch.from_numpy(numpy.array(["a"]))
        with self.assertRaises(RuntimeError):
            torch.ones(1, requires_grad=True).numpy()
        with self.assertRaises(TypeError):
            torch.ones(1, dtype=torch.bfloat16).numpy()

    def test_arrays_and_numbers_as_data(self):
        self.assertIs(torch.tensor(numpy.float64(2)).dtype, torch.float64)
        self.assertIs(torch.tensor(numpy.arange(3, dtype=numpy.int32)).dtype, torch.int32)
        self.assertEqual((torch.ones(2) * numpy.float32(2)).tolist(), [2.0, 2.0])
        self.assertEqual(numpy.asarray(torch.ones(2)).tolist(), [1.0, 1.0])
        self.assertEqual(torch.arange(5)[numpy.array([1, 3])].tolist(), [1, 3])

    def test_numpys_functions_give_tensors(self):
        x = torch.tensor([0.0, 1.0])
        for result, expected in ((numpy.sin(x), [0.0, float(numpy.sin(numpy.float32(1)))]), (numpy.add(x, x), [0.0, 2.0])):
            self.assertIs(type(result), torch.Tensor)
            self.assertEqual((result.tolist(), result.dtype), (expected, torch.float32))
        self.assertEqual(numpy.isnan(x).dtype, torch.uint8)
        self.assertEqual(x.__array_wrap__(numpy.ones(3)).tolist(), [1.0, 1.0, 1.0])
        with self.assertRaises(TypeError):
            x.__array_wrap__(numpy.ones(2, dtype=complex))
        with self.assertRaises(RuntimeError):
            numpy.sin(x.requires_grad_())

    def test_dlpack_both_ways(self):
        n = numpy.from_dlpack(torch.arange(3))
        self.assertEqual(n.tolist(), [0, 1, 2])
        self.assertEqual(torch.from_dlpack(numpy.arange(3.0)).tolist(), [0.0, 1.0, 2.0])
        x = torch.arange(3)
        y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
        y[0] = 5
        self.assertEqual(x.tolist(), [5, 1, 2])


class DefaultDevice(unittest.TestCase):
    def test_is_where_tensors_of_nothing_are_made(self):
        output = ranks.run_program("""
import athanor as torch
host = torch.ones(2)
torch.set_default_device("cuda:1")
print(torch.get_default_device())
made = [torch.zeros(2), torch.empty(2), torch.arange(3), torch.randn(2), torch.full((1,), 2), torch.eye(2), torch.linspace(0, 1, 3),
        torch.randperm(3), torch.tensor([1.0]), torch.as_tensor([1]), torch.asarray([1]), torch.hann_window(3),
        torch.nn.Linear(2, 3).weight]
print({str(t.device) for t in made})
# What has a tensor to go by stays with that, and what is named is named.
kept = [torch.zeros_like(host), host.new_ones(2), host.clone(), torch.tensor(host.tolist(), device="cpu"), torch.ones(1, device="cpu")]
print({str(t.device) for t in kept})
with torch.device("cuda:0") as device:
    print(device, torch.zeros(1).device)
    with torch.device("cpu"):
        print(torch.zeros(1).device)
    try:
        with torch.device("cpu"):
            raise KeyError
    except KeyError:
        print(torch.zeros(1).device)
print(torch.zeros(1).device)
torch.set_default_device(None)
print(torch.get_default_device(), torch.zeros(1).device)
""", devices=2)
        self.assertEqual(output.splitlines(), ["cuda:1", "{'cuda:1'}", "{'cpu'}", "cuda:0 cuda:0", "cpu", "cuda:0", "cuda:1",
                                               "cpu cpu"])

    def test_belongs_to_its_thread(self):
        with torch.device("cuda:0"):
            seen = []
            thread = threading.Thread(target=lambda: seen.append(torch.get_default_device()))
            thread.start()
            thread.join()
            self.assertEqual((str(torch.get_default_device()), str(seen[0])), ("cuda:0", "cpu"))
        self.assertEqual(str(torch.get_default_device()), "cpu")


class Calls(unittest.TestCase):
    def test_polygamma_in_place(self):
        x = torch.tensor([0.5, 1.0], dtype=torch.float64)
        expected = x.polygamma(1)
        y = x.clone()
        self.assertIs(y.polygamma_(1), y)
        self.assertEqual(y.tolist(), expected.tolist())
        with self.assertRaisesRegex(RuntimeError, "can't be cast"):
            torch.tensor([1]).polygamma_(1)
        x.requires_grad_()
        (g,) = torch.autograd.grad(x.clone().polygamma_(1).sum(), x)
        self.assertTrue(torch.allclose(g, x.detach().polygamma(2)))

    def test_extremes_of_nothing(self):
        nothing = torch.ones(0, 3)
        for call, error in ((nothing.max, RuntimeError), (nothing.min, RuntimeError), (nothing.argmax, IndexError),
                            (nothing.argmin, IndexError), (lambda: nothing.max(0), IndexError)):
            self.assertRaises(error, call)
        self.assertEqual(nothing.argmax(1).shape, (0,))

    def test_keywords_and_numpys_names(self):
        a = torch.arange(6.0).reshape(2, 3)
        self.assertEqual(torch.sum(input=a, dim=0).tolist(), [3, 5, 7])
        self.assertEqual(a.sum(axis=1, keepdims=True).shape, (2, 1))
        self.assertEqual(torch.cat(tensors=(a, a), dim=1).shape, (2, 6))
        self.assertEqual(torch.clamp(a, max=2).max().item(), 2)
        self.assertEqual(torch.add(a, a, alpha=2)[0, 1].item(), 3)

    def test_out_receives_the_result(self):
        out = torch.empty(2)
        r = torch.add(torch.ones(2), torch.ones(2), out=out)
        self.assertIs(r, out)
        self.assertEqual(out.tolist(), [2.0, 2.0])

    def test_einsum_with_dims_as_numbers(self):
        a, b = torch.randn(2, 3), torch.randn(3, 4)
        self.assertTrue(torch.equal(torch.einsum(a, [0, 1], b, [1, 2], [0, 2]), torch.einsum("ab,bc->ac", a, b)))
        self.assertTrue(torch.equal(torch.einsum(a, [30, 1], b, [1, 2]), torch.einsum("eB,BC->Ce", a, b)))
        self.assertTrue(torch.equal(torch.einsum(a, [0, ...], [..., 0]), a.t()))
        with self.assertRaisesRegex(RuntimeError, "not within the valid range"):
            torch.einsum(a, [0, 52])

    def test_results_with_names(self):
        r = torch.tensor([3, 1, 2]).sort()
        self.assertEqual(r.values.tolist(), [1, 2, 3])
        values, indices = r
        self.assertEqual(indices.tolist(), [1, 2, 0])
        self.assertEqual(repr(torch.tensor([1, 5]).max(0)),
                         "torch.return_types.max(\nvalues=tensor(5),\nindices=tensor(1))")

    def test_wrong_arguments_raise_type_errors_that_name_them(self):
        a = torch.ones(2)
        for call, text in ((lambda: torch.relu(a, a), "takes 1 positional argument but 2 were given"),
                           (lambda: torch.zeros("a"), r"argument 'size' \(position 1\) must be tuple of ints, not str"),
                           (lambda: torch.relu(input=3), "must be Tensor, not int"),
                           (lambda: torch.relu(), "missing 1 required positional arguments: \"input\""),
                           (lambda: torch.relu(a, b=1), "unexpected keyword argument 'b'"),
                           (lambda: torch.add(a, "x"), "invalid combination of arguments"),
                           (lambda: torch.Tensor.relu(3), "needs a Tensor")):
            with self.assertRaisesRegex(TypeError, text):
                call()

    def test_errors_of_the_library_keep_their_class(self):
        with self.assertRaises(RuntimeError):
            torch.ones(2) + torch.ones(3)
        with self.assertRaises(IndexError):
            torch.ones(2).sum(5)

    def test_to_in_all_spellings(self):
        a = torch.ones(2)
        self.assertIs(a.to(torch.float64).dtype, torch.float64)
        self.assertIs(a.to("cpu", torch.int32).dtype, torch.int32)
        self.assertIs(a.to(torch.ones(1, dtype=torch.int8)).dtype, torch.int8)
        self.assertIs(a.to(dtype=torch.half).dtype, torch.float16)
        self.assertIs(a.to("cpu"), a)
        self.assertEqual(a.to(torch.device("cpu")).device, torch.device("cpu"))

    def test_the_lock_is_released_in_long_ops(self):
        a = torch.ones(2000, 2000)
        ticks = []
        stop = threading.Event()

        def tick():
            while not stop.wait(0.0005):
                ticks.append(1)

        t = threading.Thread(target=tick)
        t.start()
        # Within one call nothing but the call itself can hand over the lock.
        before = len(ticks)
        a @ a
        during = len(ticks) - before
        stop.set()
        t.join(60)
        self.assertGreater(during, 2)


if __name__ == "__main__":
    unittest.main()
