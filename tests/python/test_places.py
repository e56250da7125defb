"""Names in other places than the reference lists, and what shows a network or a graph."""
import unittest

import athanor as torch


class Views(unittest.TestCase):
    """What shows a network and a graph."""

    def test_a_network_as_a_table(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2, bias=False))
        net[2].weight.requires_grad_(False)
        text = torch.utils.summary(net, torch.ones(5, 3))
        lines = text.splitlines()
        self.assertEqual(lines[0].split(), ["Module", "Class", "Result", "Parameters"])
        self.assertEqual(lines[3].split(), ["0", "Linear", "[5,", "4]", "16"])
        self.assertEqual(lines[-1], "Parameters: 32, training: 24, buffers: 9, bytes: 168")
        self.assertNotIn("Result", torch.utils.summary(net))
        self.assertFalse(net[0]._forward_hooks)

    def test_a_graph_for_graphviz(self):
        net = torch.nn.Linear(3, 2)
        text = torch.autograd.graph.to_dot(net(torch.ones(1, 3)).sum(), dict(net.named_parameters()))
        for word in ("digraph", "SumBackward0", "AddmmBackward0", "weight", "bias"):
            self.assertIn(word, text)


class Places(unittest.TestCase):
    """Where programs look for names besides the places that the reference lists."""

    def test_modules_by_class(self):
        from athanor.distributions.categorical import Categorical
        from athanor.distributions.normal import Normal
        from athanor.utils.hooks import RemovableHandle
        self.assertIs(Normal, torch.distributions.Normal)
        self.assertIs(Categorical, torch.distributions.categorical.Categorical)
        self.assertIsInstance(torch.nn.Linear(1, 1).register_forward_hook(lambda *_: None), RemovableHandle)
        self.assertEqual(set(torch.types.Number.__args__), {int, float, bool})
        self.assertIs(torch.types.Tensor, torch.Tensor)
        self.assertIs(torch.types.Storage, torch.UntypedStorage)

    def test_the_host_as_a_device(self):
        with torch.cpu.amp.autocast(), torch.cpu.stream(torch.cpu.current_stream()):
            self.assertIs(torch.ones(2, 2).mm(torch.ones(2, 2)).dtype, torch.bfloat16)
        torch.cpu.synchronize()
        self.assertEqual((torch.cpu.is_available(), torch.cpu.device_count(), torch.cpu.current_device()), (True, 1, "cpu"))

    def test_variables_are_tensors(self):
        from athanor.autograd import Variable
        self.assertIsInstance(torch.ones(1), Variable)
        self.assertNotIsInstance([1.0], Variable)
        x = torch.ones(2)
        v = Variable(x, requires_grad=True)
        self.assertTrue(v.requires_grad and v.data_ptr() == x.data_ptr())
        with self.assertWarnsRegex(UserWarning, "volatile was removed"):
            self.assertFalse(Variable(x, volatile=True).requires_grad)

    def test_kernels_of_attention(self):
        from athanor.nn.attention import SDPBackend, sdpa_kernel
        q = torch.randn(1, 2, 3, 4)
        attend = torch.nn.functional.scaled_dot_product_attention
        expected = attend(q, q, q)
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            self.assertTrue(torch.equal(attend(q, q, q), expected))
        with self.assertRaises(AssertionError):
            sdpa_kernel("flash").__enter__()

    def test_nothing_is_overridden(self):
        from athanor import overrides
        self.assertFalse(overrides.has_torch_function((torch.ones(1),)))
        self.assertTrue(overrides.is_tensor_like(torch.ones(1)))
        self.assertTrue(overrides.is_tensor_method_or_property(torch.Tensor.add))
        self.assertFalse(overrides.is_tensor_method_or_property(torch.add))

    def test_events_before_devices(self):
        start = torch.cuda.Event(enable_timing=True)
        if not torch.cuda.is_available():
            with self.assertRaises(AssertionError):
                start.record()

    def test_modes_of_determinism(self):
        for mode, number in (("warn", 1), (2, 2), ("default", 0)):
            torch.set_deterministic_debug_mode(mode)
            self.assertEqual(torch.get_deterministic_debug_mode(), number)
        with self.assertRaises(RuntimeError):
            torch.set_deterministic_debug_mode("never")

    def test_functions_keep_the_precision_of_their_forward(self):
        seen = []

        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cpu")
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a.mm(b)

            @staticmethod
            @torch.amp.custom_bwd(device_type="cpu")
            def backward(ctx, grad):
                a, b = ctx.saved_tensors
                product = grad.mm(b.t())
                seen.append(product.dtype)
                return product.float(), a.t().mm(grad).float()

        class InFloat(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
            def forward(ctx, a):
                seen.append((a.dtype, torch.is_autocast_enabled()))
                return a * 2

            @staticmethod
            @torch.amp.custom_bwd(device_type="cpu")
            def backward(ctx, grad):
                return grad * 2

        a = torch.randn(2, 2, requires_grad=True)
        with torch.autocast("cpu"):
            y = Product.apply(a, a)
            InFloat.apply(torch.ones(2, dtype=torch.bfloat16))
        y.float().sum().backward()
        self.assertEqual(seen, [(torch.float32, False), torch.bfloat16])

    def test_tensors_made_for_tests(self):
        from athanor.testing import make_tensor
        self.assertEqual(make_tensor(2, 3, dtype=torch.float32).shape, (2, 3))
        self.assertFalse(make_tensor((4, 6), dtype=torch.float64, noncontiguous=True).is_contiguous())
        whole = make_tensor((1000,), dtype=torch.int8, low=-2, high=3)
        self.assertEqual(sorted(set(whole.tolist())), [-2, -1, 0, 1, 2])
        self.assertNotIn(0, make_tensor((100,), dtype=torch.int64, low=0, high=2, exclude_zero=True).tolist())
        self.assertEqual(make_tensor((), dtype=torch.bool).dtype, torch.bool)
        with self.assertRaises(ValueError):
            make_tensor(2, dtype=torch.int64, requires_grad=True)


if __name__ == "__main__":
    unittest.main()
