"""nn.utils.prune: what goes, what stays, pruning again, undoing it; call by call as PyTorch where a Python has it."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer  # noqa: E402


def layer(torch, *shape):
    """A linear layer with the weights 1, -2, 3, -4, … in no order."""
    net = torch.nn.Linear(shape[1], shape[0])
    count = shape[0] * shape[1]
    numbers = [float((i * 7) % count + 1) * (-1) ** i for i in range(count)]
    with torch.no_grad():
        net.weight.copy_(torch.tensor(numbers).view(*shape))
        net.bias.copy_(torch.arange(shape[0]) * 1.5 - 1)
    return net


def kinds(torch):
    """Calls without random numbers: name, shape, a function of the layer and of prune."""
    scores = torch.arange(20).view(4, 5) * 1.0
    return [
        ("identity", (4, 5), lambda m, p: p.identity(m, "weight")),
        ("l1 count", (4, 5), lambda m, p: p.l1_unstructured(m, "weight", 6)),
        ("l1 fraction", (4, 5), lambda m, p: p.l1_unstructured(m, "weight", amount=0.33)),
        ("l1 none", (4, 5), lambda m, p: p.l1_unstructured(m, "weight", 0)),
        ("l1 all", (4, 5), lambda m, p: p.l1_unstructured(m, "weight", 1.0)),
        ("l1 scores", (4, 5), lambda m, p: p.l1_unstructured(m, "weight", 7, importance_scores=scores)),
        ("l1 twice", (4, 5), lambda m, p: p.l1_unstructured(p.l1_unstructured(m, "weight", 5), "weight", 0.5)),
        ("ln 1", (4, 5), lambda m, p: p.ln_structured(m, "weight", 2, 1, 0)),
        ("ln 2", (4, 5), lambda m, p: p.ln_structured(m, "weight", 0.5, n=2, dim=1)),
        ("ln inf", (4, 5), lambda m, p: p.ln_structured(m, "weight", 2, float("inf"), -1)),
        ("ln all", (4, 5), lambda m, p: p.ln_structured(m, "weight", 4, 2, 0)),
        ("ln scores", (4, 5), lambda m, p: p.ln_structured(m, "weight", 1, 2, 0, importance_scores=-scores)),
        ("ln after l1", (4, 5), lambda m, p: p.ln_structured(p.l1_unstructured(m, "weight", 9), "weight", 0.5, 2, 0)),
        ("ln twice", (4, 5), lambda m, p: p.ln_structured(p.ln_structured(m, "weight", 2, 2, 0), "weight", 1, 2, -2)),
        ("l1 after ln", (4, 5), lambda m, p: p.l1_unstructured(p.ln_structured(m, "weight", 2, 2, 1), "weight", 4)),
        ("mask", (4, 5), lambda m, p: p.custom_from_mask(m, "weight", scores % 2)),
        ("mask after l1", (4, 5),
         lambda m, p: p.custom_from_mask(p.l1_unstructured(m, "weight", 3), "weight", mask=scores > 4)),
        ("bias too", (4, 5), lambda m, p: p.l1_unstructured(p.l1_unstructured(m, "bias", 2), "weight", 3)),
        ("removed", (4, 5), lambda m, p: p.remove(p.l1_unstructured(m, "weight", 8), "weight")),
        ("global", (4, 5),
         lambda m, p: p.global_unstructured([(m, "weight"), (m, "bias")], pruning_method=p.L1Unstructured, amount=11)),
        ("global again", (4, 5),
         lambda m, p: [p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.3)
                       for _ in range(3)]),
        ("global scores", (4, 5),
         lambda m, p: p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=4,
                                            importance_scores={(m, "bias"): torch.ones(4) * 100})),
    ]


def refusals(torch):
    return [
        ("no number", lambda m, p: p.l1_unstructured(m, "weight", "a")),
        ("negative", lambda m, p: p.l1_unstructured(m, "weight", -1)),
        ("fraction above 1", lambda m, p: p.random_unstructured(m, "weight", 1.5)),
        ("too many", lambda m, p: p.random_unstructured(m, "weight", 21)),
        ("too many slices", lambda m, p: p.random_structured(m, "weight", 6, 1)),
        ("slices of a vector", lambda m, p: p.ln_structured(m, "bias", 1, 2, 0)),
        ("no such dim", lambda m, p: p.ln_structured(m, "weight", 1, 2, 2)),
        ("other scores", lambda m, p: p.l1_unstructured(m, "weight", 1, importance_scores=torch.ones(3))),
        ("other mask", lambda m, p: p.custom_from_mask(m, "weight", torch.ones(3, 3))),
        ("not pruned", lambda m, p: p.remove(m, "weight")),
        ("other pruned", lambda m, p: p.remove(p.identity(m, "bias"), "weight")),
        ("no such parameter", lambda m, p: p.l1_unstructured(m, "weights", 1)),
        ("global: no list", lambda m, p: p.global_unstructured(3, p.L1Unstructured, amount=1)),
        ("global: slices", lambda m, p: p.global_unstructured([(m, "weight")], p.LnStructured, amount=1, n=2)),
        ("global: scores", lambda m, p: p.global_unstructured([(m, "weight")], p.L1Unstructured, [1], amount=1)),
        ("abstract", lambda m, p: p.BasePruningMethod()),
        ("not a method", lambda m, p: p.PruningContainer().add_pruning_method("l1")),
        ("another parameter's", lambda m, p: p.PruningContainer(p.Identity.apply(m, "weight")).add_pruning_method(
            p.Identity.apply(m, "bias"))),
    ]


def run(torch) -> dict:
    """Values, state, output, gradients of all kinds; the classes of all refusals and what is left behind by them."""
    prune = importlib.import_module(torch.__name__ + ".nn.utils.prune")
    result: dict = {}
    for name, shape, call in kinds(torch):
        net = layer(torch, *shape)
        call(net, prune)
        out = net(torch.arange(shape[1]) * 0.5 - 1)
        out.sum().backward()
        result[name] = {
            "weight": net.weight.tolist(), "bias": net.bias.tolist(), "out": out.tolist(),
            "state": {k: v.tolist() for k, v in net.state_dict().items()},
            "parameters": [(n, p.grad.tolist()) for n, p in net.named_parameters()], "pruned": prune.is_pruned(net),
            "hooks": [type(h).__name__ for h in net._forward_pre_hooks.values()],
        }
    for name, call in refusals(torch):
        net = layer(torch, 4, 5)
        try:
            call(net, prune)
            result[name] = "accepted"
        except Exception as error:
            result[name] = type(error).__name__, sorted(net.state_dict()), len(net._forward_pre_hooks)
    return result


class Pruning(unittest.TestCase):
    def setUp(self) -> None:
        import athanor
        from athanor.nn.utils import prune

        self.torch, self.prune = athanor, prune
        athanor.manual_seed(0)

    def test_random_methods_take_as_many_as_asked(self) -> None:
        net = self.torch.nn.Linear(30, 20)
        self.prune.random_unstructured(net, "weight", 0.25)
        self.assertEqual(int((net.weight == 0).sum()), 150)
        self.prune.random_unstructured(net, "weight", 50)
        self.assertEqual(int((net.weight_mask == 0).sum()), 200)
        net = self.torch.nn.Conv2d(6, 8, 3)
        self.prune.random_structured(net, "weight", 3, dim=1)
        whole = (net.weight_mask == 0).all(3).all(2).all(0)
        self.assertEqual((int(whole.sum()), float(net.weight_mask.mean())), (3, 0.5))
        first = net.weight_mask.clone()
        self.prune.random_structured(net, "weight", 0.5, dim=0)
        self.assertEqual(float(net.weight_mask.mean()), 0.25)
        self.assertTrue(bool((net.weight_mask <= first).all()))

    def test_the_least_go(self) -> None:
        for call, gone in ((lambda m: self.prune.l1_unstructured(m, "weight", 3), lambda w: w.abs() <= 3),
                           (lambda m: self.prune.l1_unstructured(m, "weight", 0.9), lambda w: w.abs() <= 18),
                           (lambda m: self.prune.ln_structured(m, "weight", 2, 1, 1),
                            lambda w: (w.abs().sum(0) < w.abs().sum(0).sort().values[2]).expand(4, 5)),
                           (lambda m: self.prune.ln_structured(m, "weight", 1, float("inf"), 0),
                            lambda w: (w.abs().amax(1) == w.abs().amax(1).min()).unsqueeze(1).expand(4, 5))):
            net = layer(self.torch, 4, 5)
            expected = gone(net.weight.detach().clone())
            call(net)
            self.assertEqual((net.weight_mask == 0).tolist(), expected.tolist())

    def test_the_random_choice_is_random(self) -> None:
        masks = set()
        for _ in range(20):
            net = self.torch.nn.Linear(8, 8)
            self.prune.random_unstructured(net, "weight", 0.5)
            masks.add(tuple(net.weight_mask.view(-1).tolist()))
        self.assertGreater(len(masks), 15)

    def test_training_leaves_what_is_pruned_at_zero(self) -> None:
        net = self.torch.nn.Linear(4, 3)
        self.prune.l1_unstructured(net, "weight", 6)
        gone = net.weight_mask == 0
        optimizer = self.torch.optim.SGD(net.parameters(), lr=0.1)
        before = net.weight.detach().clone()
        for _ in range(3):
            optimizer.zero_grad()
            net(self.torch.randn(5, 4)).pow(2).sum().backward()
            self.assertEqual(float(net.weight_orig.grad[gone].abs().sum()), 0.0)
            optimizer.step()
        net(self.torch.ones(4))
        self.assertEqual(float(net.weight[gone].abs().sum()), 0.0)
        self.assertTrue(bool((net.weight != before)[~gone].all()))
        parameter = net.weight_orig
        self.prune.remove(net, "weight")
        self.assertIs(net.weight, parameter)
        self.assertEqual(float(net.weight[gone].abs().sum()), 0.0)
        self.assertFalse(self.prune.is_pruned(self.torch.nn.Sequential(net)))

    def test_a_pruned_state_goes_into_another_pruned_module(self) -> None:
        a, b = (self.prune.l1_unstructured(layer(self.torch, 3, 4), "weight", n) for n in (2, 5))
        b.load_state_dict(a.state_dict())
        x = self.torch.ones(4)
        self.assertEqual(a(x).tolist(), b(x).tolist())

    def test_a_removed_module_can_be_copied(self) -> None:
        net = self.prune.remove(self.prune.l1_unstructured(layer(self.torch, 3, 4), "weight", 2), "weight")
        self.assertEqual(copy.deepcopy(net).weight.tolist(), net.weight.tolist())

    def test_a_method_of_the_programs_own(self) -> None:
        class EverySecond(self.prune.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t, default_mask):
                mask = default_mask.clone()
                mask.view(-1)[::2] = 0
                return mask

        net = layer(self.torch, 2, 4)
        EverySecond.apply(net, "weight")
        self.assertEqual(net.weight_mask.tolist(), [[0, 1, 0, 1], [0, 1, 0, 1]])
        EverySecond.apply(net, "weight")
        self.assertEqual(net.weight_mask.tolist(), [[0, 0, 0, 1], [0, 0, 0, 1]])
        hook = next(iter(net._forward_pre_hooks.values()))
        self.assertEqual([type(m) for m in hook], [EverySecond] * 2)
        self.assertEqual((len(hook), hook[1]._tensor_name), (2, "weight"))

    def test_an_unknown_type_and_a_dim_that_is_missing(self) -> None:
        class Strange(self.prune.Identity):
            PRUNING_TYPE = "strange"

        class Slices(self.prune.Identity):
            PRUNING_TYPE = "structured"

        net = self.prune.identity(layer(self.torch, 2, 4), "weight")
        with self.assertRaisesRegex(ValueError, "strange"):
            Strange.apply(net, "weight")
        with self.assertRaisesRegex(AttributeError, "dim"):
            Slices.apply(net, "weight")
        self.assertEqual(len(net._forward_pre_hooks), 1)

    def test_a_tensor_without_a_module(self) -> None:
        t = self.torch.tensor([3.0, -1.0, 2.0])
        method = self.prune.L1Unstructured(amount=1)
        self.assertEqual(method.prune(t).tolist(), [3.0, 0.0, 2.0])
        self.assertEqual(method.prune(t, importance_scores=-t.flip(0)).tolist(), [3.0, 0.0, 2.0])
        mask = self.torch.tensor([0.0, 1.0, 1.0])
        self.assertEqual(method.prune(t, default_mask=mask).tolist(), [0.0, 0.0, 2.0])
        with self.assertRaises(AssertionError):
            method.prune(t, importance_scores=t[:2])

    def test_as_in_pytorch(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results")
            peer.run(os.path.abspath(__file__), "torch", path)
            with open(path, "rb") as f:
                theirs = pickle.load(f)
        ours = run(self.torch)
        self.assertEqual(set(ours), set(theirs))
        for name, value in theirs.items():
            with self.subTest(name):
                self.assertEqual(ours[name], value)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        with open(sys.argv[2], "wb") as out:
            pickle.dump(run(importlib.import_module(sys.argv[1])), out)
    else:
        unittest.main()
