"""nn.Module: registration, traversal, hooks, states, copies."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import unittest
import warnings
import weakref
from collections import OrderedDict

import athanor as torch
from athanor import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False))
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.second(self.first(x)) * self.scale


class Registration(unittest.TestCase):
    def test_attributes_are_registered_by_their_kind(self) -> None:
        net = Net()
        self.assertEqual(
            [n for n, _ in net.named_parameters()], ["scale", "first.weight", "first.bias", "second.1.weight"]
        )
        self.assertEqual([n for n, _ in net.named_buffers()], ["seen", "scratch"])
        self.assertEqual([n for n, _ in net.named_children()], ["first", "second"])
        self.assertEqual([n for n, _ in net.named_modules()], ["", "first", "second", "second.0", "second.1"])
        self.assertEqual(len(list(net.parameters(recurse=False))), 1)
        self.assertIs(net.get_submodule("second.1"), net.second[1])
        self.assertIs(net.get_parameter("first.weight"), net.first.weight)
        self.assertIs(net.get_buffer("seen"), net.seen)
        self.assertIs(net.get_submodule(""), net)

    def test_shared_parameters_and_modules_count_once(self) -> None:
        layer = nn.Linear(2, 2)
        net = nn.Sequential(layer, layer)
        self.assertEqual(len(list(net.parameters())), 2)
        self.assertEqual(len(list(net.modules())), 2)
        self.assertEqual(len(list(net.named_parameters(remove_duplicate=False))), 4)
        self.assertEqual(len(list(net.modules(remove_duplicate=False))), 3)

    def test_an_attribute_changes_its_kind(self) -> None:
        m = nn.Module()
        m.x = 1
        m.x = nn.Parameter(torch.ones(2))
        self.assertNotIn("x", m.__dict__)
        self.assertIn("x", m._parameters)
        m.x = nn.ReLU()
        self.assertNotIn("x", m._parameters)
        self.assertIn("x", m._modules)
        m.x = None
        self.assertIsNone(m.x)
        del m.x
        self.assertFalse(hasattr(m, "x"))
        m.register_buffer("b", torch.ones(1))
        m.b = torch.zeros(1)
        self.assertEqual(float(m._buffers["b"]), 0.0)
        m.b = None
        self.assertIsNone(m.b)
        m.c = nn.Buffer(torch.ones(1), persistent=False)
        self.assertIn("c", m._buffers)
        self.assertEqual(list(m.state_dict()), [])

    def test_parameter_set_to_none_keeps_its_name(self) -> None:
        layer = nn.Linear(2, 3)
        layer.bias = None
        self.assertEqual([n for n, _ in layer.named_parameters()], ["weight"])
        self.assertEqual(list(layer._parameters), ["weight", "bias"])
        self.assertEqual(tuple(layer(torch.ones(1, 2)).shape), (1, 3))

    def test_a_plain_tensor_is_a_plain_attribute(self) -> None:
        m = nn.Module()
        m.t = torch.ones(2)
        self.assertEqual(list(m.parameters()) + list(m.buffers()), [])
        self.assertIn("t", m.__dict__)

    def test_refusals(self) -> None:
        layer = nn.Linear(2, 3)
        with self.assertRaisesRegex(TypeError, "cannot assign 'athanor.*Tensor' as parameter 'weight'|cannot assign"):
            layer.weight = torch.ones(3, 2)
        with self.assertRaisesRegex(KeyError, "attribute 'weight' already exists"):
            layer.register_buffer("weight", torch.ones(1))
        with self.assertRaisesRegex(ValueError, "Cannot assign non-leaf Tensor to parameter 'p'"):
            layer.register_parameter("p", _nonleaf())

        class Forgot(nn.Module):
            def __init__(self) -> None:
                self.layer = nn.ReLU()

        with self.assertRaisesRegex(AttributeError, r"cannot assign module before Module.__init__\(\) call"):
            Forgot()
        with self.assertRaisesRegex(NotImplementedError, 'missing the required "forward" function'):
            nn.Module()(1)
        with self.assertRaisesRegex(AttributeError, "'Linear' object has no attribute 'wieght'"):
            layer.wieght

    def test_dir_has_the_names_of_parts(self) -> None:
        names = dir(Net())
        for name in ("first", "scale", "seen", "forward", "state_dict"):
            self.assertIn(name, names)
        self.assertNotIn("0", dir(nn.Sequential(nn.ReLU())))

    def test_set_submodule(self) -> None:
        net = Net()
        net.set_submodule("second.0", nn.Tanh())
        self.assertIsInstance(net.second[0], nn.Tanh)
        with self.assertRaises(AttributeError):
            net.set_submodule("second.7", nn.Tanh(), strict=True)

    def test_apply_visits_children_first(self) -> None:
        seen = []
        net = Net()
        self.assertIs(net.apply(lambda m: seen.append(type(m).__name__)), net)
        self.assertEqual(seen, ["Linear", "ReLU", "Linear", "Sequential", "Net"])


def _nonleaf():
    p = nn.Parameter(torch.ones(1))
    q = p * 2
    # A parameter that has a graph behind it, as in-place operations make one.
    with torch.no_grad():
        r = nn.Parameter(torch.ones(1), requires_grad=False)
    r *= q
    return r


class Errors(unittest.TestCase):
    def setUp(self) -> None:
        if sys.version_info < (3, 11):
            self.skipTest("errors take notes since Python 3.11")

    def test_an_error_tells_its_place(self) -> None:
        net = Net()
        net.second[1] = nn.Linear(7, 1)
        for hooked in (False, True):
            if hooked:
                net.second.register_forward_hook(lambda *a: None)
            with self.assertRaisesRegex(RuntimeError, "cannot be multiplied") as caught:
                net(torch.ones(1, 2))
            self.assertEqual(caught.exception.__notes__, ["in Net.second.1"])

    def test_a_module_that_is_called_from_outside(self) -> None:
        outside = nn.Linear(7, 1)

        class Caller(nn.Module):
            def forward(self, x):
                return outside(x)

        with self.assertRaises(RuntimeError) as caught:
            nn.Sequential(Caller())(torch.ones(1, 2))
        self.assertEqual(caught.exception.__notes__, ["in Linear"])

    def test_errors_of_ones_own_go_through(self) -> None:
        class Broken(nn.Module):
            def forward(self, x):
                raise KeyError("a")

        with self.assertRaises(KeyError) as caught:
            nn.Sequential(nn.ReLU(), Broken())(torch.ones(1))
        self.assertEqual(caught.exception.args, ("a",))
        self.assertEqual(caught.exception.__notes__, ["in Sequential.1"])


class ModesAndKinds(unittest.TestCase):
    def test_train_and_eval_reach_every_module(self) -> None:
        net = Net()
        self.assertTrue(all(m.training for m in net.modules()))
        self.assertIs(net.eval(), net)
        self.assertFalse(any(m.training for m in net.modules()))
        net.train()
        self.assertTrue(all(m.training for m in net.modules()))

    def test_to_keeps_the_parameter_objects(self) -> None:
        net = Net()
        before = list(net.parameters())
        net(torch.ones(1, 2)).sum().backward()
        self.assertIs(net.double(), net)
        for p, q in zip(before, net.parameters()):
            self.assertIs(p, q)
            self.assertEqual(q.dtype, torch.float64)
            self.assertEqual(q.grad.dtype, torch.float64)
        self.assertEqual(net.seen.dtype, torch.float64)
        net.to(torch.float32)
        self.assertEqual(net.scale.dtype, torch.float32)
        net.to("cpu", torch.float64)
        self.assertEqual(net.scale.dtype, torch.float64)
        net.to(device="cpu", dtype=torch.float32, non_blocking=True)
        net.to(torch.ones(1, dtype=torch.float64))
        self.assertEqual(net.first.bias.dtype, torch.float64)
        net.half()
        self.assertEqual(net.seen.dtype, torch.float16)
        net.bfloat16().float()
        self.assertEqual(net.seen.dtype, torch.float32)

    def test_casts_keep_the_gradient_objects(self) -> None:
        layer = nn.Linear(2, 2)
        layer(torch.ones(1, 2)).sum().backward()
        grad = layer.weight.grad
        for dtype in (torch.float16, torch.float64):
            layer.to(dtype)
            self.assertIs(layer.weight.grad, grad)
            self.assertIs(grad.dtype, dtype)
        layer(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
        self.assertEqual(grad.tolist(), [[2, 2], [2, 2]])

    def test_integer_buffers_stay_integers(self) -> None:
        norm = nn.BatchNorm1d(2).double()
        self.assertEqual(norm.num_batches_tracked.dtype, torch.int64)
        self.assertEqual(norm.running_mean.dtype, torch.float64)

    def test_requires_grad_and_zero_grad(self) -> None:
        net = Net()
        net(torch.ones(1, 2)).sum().backward()
        net.zero_grad(set_to_none=False)
        self.assertEqual(float(net.scale.grad), 0.0)
        net.zero_grad()
        self.assertIsNone(net.scale.grad)
        net.requires_grad_(False)
        self.assertFalse(any(p.requires_grad for p in net.parameters()))
        self.assertFalse(net(torch.ones(1, 2)).requires_grad)

    def test_device_and_dtype_of_the_constructor(self) -> None:
        layer = nn.Linear(2, 3, device="cpu", dtype=torch.float64)
        self.assertEqual(layer.bias.dtype, torch.float64)


class Hooks(unittest.TestCase):
    def test_forward_hooks_change_arguments_and_results(self) -> None:
        layer = nn.Identity()
        pre = layer.register_forward_pre_hook(lambda m, args: args[0] + 1)
        post = layer.register_forward_hook(lambda m, args, out: out * 10)
        self.assertEqual(float(layer(torch.ones(1))), 20.0)
        pre.remove()
        self.assertEqual(float(layer(torch.ones(1))), 10.0)
        post.remove()
        self.assertEqual(float(layer(torch.ones(1))), 1.0)

    def test_order_prepend_and_context(self) -> None:
        layer = nn.Identity()
        order: list[str] = []
        layer.register_forward_hook(lambda *a: order.append("second"))
        layer.register_forward_hook(lambda *a: order.append("first"), prepend=True)
        with layer.register_forward_hook(lambda *a: order.append("third")):
            layer(1)
        layer(1)
        self.assertEqual(order, ["first", "second", "third", "first", "second"])

    def test_hooks_with_kwargs(self) -> None:
        class Power(nn.Module):
            def forward(self, x, exponent=1):
                return x**exponent

        m = Power()
        m.register_forward_pre_hook(lambda m, args, kwargs: (args, {"exponent": 3}), with_kwargs=True)
        seen = {}
        m.register_forward_hook(lambda m, args, kwargs, out: seen.update(kwargs), with_kwargs=True)
        self.assertEqual(float(m(torch.tensor([2.0]), exponent=2)), 8.0)
        self.assertEqual(seen, {"exponent": 3})
        m.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
        with self.assertRaisesRegex(RuntimeError, "forward pre-hook must return None or a tuple"):
            m(torch.ones(1))

    def test_always_call_runs_when_forward_raises(self) -> None:
        class Broken(nn.Module):
            def forward(self, x):
                raise ValueError("broken")

        m = Broken()
        seen = []
        m.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
        m.register_forward_hook(lambda m, args, out: seen.append("never"))
        with self.assertRaisesRegex(ValueError, "broken"):
            m(1)
        self.assertEqual(seen, [None])

    def test_full_backward_hook_sees_and_changes_gradients(self) -> None:
        layer = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[2.0, 3.0]]))
        seen = []

        def hook(module, grad_input, grad_output):
            seen.append((module, grad_input[0].tolist(), grad_output[0].tolist()))
            return (grad_input[0] * 10,)

        handle = layer.register_full_backward_hook(hook)
        x = torch.tensor([[1.0, 1.0]], requires_grad=True)
        (layer(x) * 4).sum().backward()
        self.assertEqual(seen, [(layer, [[8.0, 12.0]], [[4.0]])])
        self.assertEqual(x.grad.tolist(), [[80.0, 120.0]])
        self.assertEqual(layer.weight.grad.tolist(), [[4.0, 4.0]])
        handle.remove()
        layer(x).sum().backward()
        self.assertEqual(len(seen), 1)

    def test_full_backward_hook_without_inputs_that_record(self) -> None:
        layer = nn.Linear(2, 1)
        seen = []
        layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
        layer(torch.ones(1, 2)).sum().backward()
        self.assertEqual(seen, [((None,), [[1.0]])])

    def test_backward_pre_hook_changes_what_goes_in(self) -> None:
        layer = nn.Linear(2, 1, bias=False)
        layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
        layer(torch.ones(1, 2)).sum().backward()
        self.assertEqual(layer.weight.grad.tolist(), [[3.0, 3.0]])

    def test_backward_hook_with_several_outputs_and_plain_values(self) -> None:
        class Pair(nn.Module):
            def forward(self, a, n, b):
                return a * n, b * 2

        seen = []
        m = Pair()
        m.register_full_backward_hook(lambda m, gi, go: seen.append(([g is None for g in gi], len(go))))
        a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        p, q = m(a, 3, b)
        (p + q).sum().backward()
        self.assertEqual(seen, [([False, True, False], 2)])
        self.assertEqual(a.grad.tolist(), [3.0, 3.0])
        self.assertEqual(b.grad.tolist(), [2.0, 2.0])

    def test_wrong_number_of_gradients_is_an_error(self) -> None:
        layer = nn.Linear(2, 1)
        layer.register_full_backward_hook(lambda m, gi, go: (None, None))
        with self.assertRaisesRegex(RuntimeError, "invalid number of grad_input, got 2, but expected 1"):
            layer(torch.ones(1, 2, requires_grad=True)).sum().backward()

    def test_hooks_of_every_module(self) -> None:
        seen = []
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, o: seen.append(type(m).__name__))
        try:
            nn.Sequential(nn.ReLU(), nn.Tanh())(torch.ones(1))
        finally:
            handle.remove()
        self.assertEqual(seen, ["ReLU", "Tanh", "Sequential"])
        nn.ReLU()(torch.ones(1))
        self.assertEqual(len(seen), 3)

    def test_registration_hooks(self) -> None:
        seen = []
        module = nn.modules.module
        handles = [
            module.register_module_parameter_registration_hook(lambda m, n, p: seen.append(n)),
            module.register_module_module_registration_hook(lambda m, n, p: seen.append(n)),
            module.register_module_buffer_registration_hook(lambda m, n, p: seen.append(n)),
        ]
        m = nn.Module()
        m.p = nn.Parameter(torch.ones(1))
        m.child = nn.ReLU()
        m.register_buffer("b", torch.ones(1))
        for h in handles:
            h.remove()
        m.q = nn.Parameter(torch.ones(1))
        self.assertEqual(seen, ["p", "child", "b"])


class States(unittest.TestCase):
    def test_keys_and_shared_memory(self) -> None:
        net = Net()
        state = net.state_dict()
        self.assertIsInstance(state, OrderedDict)
        self.assertEqual(list(state), ["scale", "seen", "first.weight", "first.bias", "second.1.weight"])
        self.assertEqual(state._metadata["first"], {"version": 1})
        state["scale"].fill_(7)
        self.assertEqual(float(net.scale), 7.0)
        self.assertFalse(state["scale"].requires_grad)
        self.assertIs(net.state_dict(keep_vars=True)["scale"], net.scale)
        self.assertEqual(list(net.first.state_dict(prefix="a.")), ["a.weight", "a.bias"])

    def test_loading_copies(self) -> None:
        source, target = Net(), Net()
        weight = target.first.weight
        result = target.load_state_dict(source.state_dict())
        self.assertEqual(repr(result), "<All keys matched successfully>")
        self.assertIs(target.first.weight, weight)
        self.assertTrue(torch.equal(weight, source.first.weight))
        self.assertTrue(weight.requires_grad)

    def test_missing_and_unexpected_keys(self) -> None:
        net = nn.Linear(2, 3)
        state = {"weight": torch.ones(3, 2), "more": torch.ones(1)}
        with self.assertRaises(RuntimeError) as caught:
            net.load_state_dict(state)
        self.assertEqual(
            str(caught.exception),
            'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "bias". \n\t'
            'Unexpected key(s) in state_dict: "more". ',
        )
        result = net.load_state_dict(state, strict=False)
        self.assertEqual(result.missing_keys, ["bias"])
        self.assertEqual(result.unexpected_keys, ["more"])
        self.assertEqual(float(net.weight.sum()), 6.0)

    def test_size_mismatch(self) -> None:
        with self.assertRaises(RuntimeError) as caught:
            nn.Sequential(nn.Linear(2, 3)).load_state_dict({"0.weight": torch.ones(2, 2), "0.bias": torch.ones(3)})
        self.assertEqual(
            str(caught.exception),
            "Error(s) in loading state_dict for Sequential:\n\tsize mismatch for 0.weight: copying a param with shape "
            "torch.Size([2, 2]) from checkpoint, the shape in current model is torch.Size([3, 2]).",
        )

    def test_assign_takes_the_tensors_themselves(self) -> None:
        net = nn.Linear(2, 3)
        value = torch.ones(3, 2, dtype=torch.float64)
        net.load_state_dict({"weight": value, "bias": torch.zeros(3)}, assign=True)
        self.assertEqual(net.weight.dtype, torch.float64)
        self.assertIsInstance(net.weight, nn.Parameter)
        value.fill_(5)
        self.assertEqual(float(net.weight.sum()), 30.0)

    def test_extra_state(self) -> None:
        class Counter(nn.Module):
            count = 0

            def get_extra_state(self):
                return {"count": self.count}

            def set_extra_state(self, state):
                self.count = state["count"]

        a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
        a[0].count = 3
        self.assertEqual(a.state_dict()["0._extra_state"], {"count": 3})
        b.load_state_dict(a.state_dict())
        self.assertEqual(b[0].count, 3)
        with self.assertRaisesRegex(RuntimeError, 'Missing key.*"0._extra_state"'):
            b.load_state_dict({})

    def test_hooks_of_states(self) -> None:
        net = nn.Linear(2, 3)
        seen = []
        net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("pre"))
        net.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop(prefix + "bias"))
        with self.assertRaisesRegex(RuntimeError, "state_dict post-hook must return None"):
            net.state_dict()
        net = nn.Linear(2, 3)

        def drop(module, state, prefix, meta):
            state.pop(prefix + "bias")

        net.register_state_dict_post_hook(drop)
        self.assertEqual(list(net.state_dict()), ["weight"])

        def rename(module, state, prefix, meta, strict, missing, unexpected, errors):
            state[prefix + "bias"] = state.pop(prefix + "old_bias")

        net.register_load_state_dict_pre_hook(rename)
        net.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys.missing_keys))
        net.load_state_dict({"weight": torch.ones(3, 2), "old_bias": torch.full((3,), 2.0)})
        self.assertEqual(float(net.bias.sum()), 6.0)
        self.assertEqual(seen[-1], [])

    def test_states_of_batch_norm_without_a_count(self) -> None:
        norm = nn.BatchNorm1d(2)
        state = norm.state_dict()
        del state["num_batches_tracked"]
        del state._metadata
        norm.load_state_dict(state)
        with self.assertRaises(RuntimeError):
            norm.load_state_dict({"weight": torch.ones(2)})


class Copies(unittest.TestCase):
    def test_deepcopy_is_apart_and_keeps_sharing(self) -> None:
        net = Net()
        net.again = net.first
        net.same = net.first.weight
        other = copy.deepcopy(net)
        self.assertIs(other.again, other.first)
        self.assertIs(other.same, other.first.weight)
        self.assertIsNot(other.first.weight, net.first.weight)
        self.assertIsInstance(other.first.weight, nn.Parameter)
        with torch.no_grad():
            other.first.weight.fill_(0)
        self.assertNotEqual(float(net.first.weight.abs().sum()), 0.0)

    def test_pickle(self) -> None:
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        net[0].bias.requires_grad_(False)
        other = pickle.loads(pickle.dumps(net))
        self.assertEqual(repr(other), repr(net))
        for (n, p), (m, q) in zip(net.state_dict().items(), other.state_dict().items()):
            self.assertEqual(n, m)
            self.assertTrue(torch.equal(p, q))
        self.assertTrue(other[0].weight.requires_grad)
        self.assertFalse(other[0].bias.requires_grad)
        self.assertIsInstance(other[0].weight, nn.Parameter)
        self.assertEqual(tuple(other.eval()(torch.ones(1, 2)).shape), (1, 3))

    def test_save_and_load_of_states(self) -> None:
        net = nn.Linear(2, 3)
        file = io.BytesIO()
        torch.save(net.state_dict(), file)
        file.seek(0)
        other = nn.Linear(2, 3)
        other.load_state_dict(torch.load(file))
        self.assertTrue(torch.equal(other.weight, net.weight))

    def test_hooks_do_not_keep_modules_alive(self) -> None:
        layer = nn.Linear(2, 1)
        handle = layer.register_forward_hook(lambda *a: None)
        layer.register_load_state_dict_pre_hook(lambda *a: None)
        layer.register_full_backward_hook(lambda *a: None)
        layer(torch.ones(1, 2, requires_grad=True)).sum().backward()
        gc.collect()
        gc.disable()
        try:
            ref = weakref.ref(layer)
            del layer
            self.assertIsNone(ref())
        finally:
            gc.enable()
        handle.remove()

    def test_hooks_follow_copies(self) -> None:
        seen = []
        layer = nn.Linear(2, 1)
        layer.register_load_state_dict_pre_hook(lambda module, *rest: seen.append(module))
        other = copy.deepcopy(layer)
        other.load_state_dict(layer.state_dict())
        self.assertEqual(len(seen), 1)
        self.assertIs(seen[0], other)

    def test_hooks_of_unpickled_modules_are_not_overwritten(self) -> None:
        layer = pickle.loads(pickle.dumps(nn.ReLU()))
        number = layer.register_forward_hook(lambda *a: None).id
        layer._forward_hooks = OrderedDict((number + i, lambda *a: None) for i in range(1, 4))
        layer.register_forward_hook(lambda *a: None)
        self.assertEqual(len(layer._forward_hooks), 4)


class Parameters(unittest.TestCase):
    def test_is_a_leaf_that_records(self) -> None:
        p = nn.Parameter(torch.ones(2))
        self.assertTrue(p.requires_grad and p.is_leaf)
        self.assertIsInstance(p, torch.Tensor)
        self.assertFalse(isinstance(p * 2, nn.Parameter))
        self.assertFalse(nn.Parameter(torch.ones(2), requires_grad=False).requires_grad)
        self.assertEqual(nn.Parameter().numel(), 0)

    def test_shares_memory_with_its_data(self) -> None:
        t = torch.zeros(2)
        p = nn.Parameter(t)
        t.fill_(3)
        self.assertEqual(float(p.sum()), 6.0)

    def test_repr(self) -> None:
        text = repr(nn.Parameter(torch.tensor([1.0, 2.0])))
        self.assertEqual(text, "Parameter containing:\ntensor([1., 2.], requires_grad=True)")

    def test_identity_survives_the_library(self) -> None:
        layer = nn.Linear(2, 3)
        self.assertIs(layer.weight, layer.weight)
        layer(torch.ones(1, 2)).sum().backward()
        self.assertIs(layer.weight.grad, layer.weight.grad)

    def test_layers_in_an_inplace_chain(self) -> None:
        net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
        net(torch.ones(4, 2)).sum().backward()
        self.assertIsNotNone(net[0].weight.grad)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
