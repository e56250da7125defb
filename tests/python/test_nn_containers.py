"""Containers of modules and parameters."""

from __future__ import annotations

import copy
import unittest
from collections import OrderedDict

import athanor as torch
from athanor import nn


def kinds(modules) -> list[str]:
    return [type(m).__name__ for m in modules]


class SequentialTest(unittest.TestCase):
    def setUp(self) -> None:
        self.s = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh(), nn.Sigmoid())

    def test_calls_in_order(self) -> None:
        x = torch.ones(1, 2)
        expected = torch.sigmoid(torch.tanh(torch.relu(self.s[0](x))))
        self.assertTrue(torch.equal(self.s(x), expected))
        self.assertIs(nn.Sequential()(x), x)

    def test_indices_and_slices(self) -> None:
        self.assertIsInstance(self.s[-1], nn.Sigmoid)
        part = self.s[1:3]
        self.assertIsInstance(part, nn.Sequential)
        self.assertEqual(kinds(part), ["ReLU", "Tanh"])
        self.assertEqual(list(part._modules), ["1", "2"])
        self.assertEqual(kinds(self.s[::2]), ["Linear", "Tanh"])
        self.assertEqual(len(self.s), 4)
        for bad in (4, -5):
            with self.assertRaisesRegex(IndexError, f"index {bad} is out of range"):
                self.s[bad]

    def test_changes(self) -> None:
        self.s[1] = nn.GELU()
        del self.s[-1]
        self.assertEqual(kinds(self.s), ["Linear", "GELU", "Tanh"])
        self.assertIs(self.s.append(nn.ReLU()), self.s)
        self.s.insert(0, nn.Identity())
        self.s.extend([nn.ELU(), nn.SELU()])
        self.assertEqual(kinds(self.s), ["Identity", "Linear", "GELU", "Tanh", "ReLU", "ELU", "SELU"])
        self.assertEqual(list(self.s._modules), [str(i) for i in range(7)])
        self.assertIsInstance(self.s.pop(1), nn.Linear)
        del self.s[1:3]
        self.assertEqual(kinds(self.s), ["Identity", "ReLU", "ELU", "SELU"])

    def test_sums_and_products(self) -> None:
        both = nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())
        self.assertEqual(kinds(both), ["ReLU", "Tanh"])
        both *= 2
        self.assertEqual(kinds(both), ["ReLU", "Tanh"] * 2)
        self.assertEqual(len(3 * nn.Sequential(nn.ReLU())), 3)
        both += nn.Sequential(nn.ELU())
        self.assertEqual(len(both), 5)
        with self.assertRaises(ValueError):
            nn.Sequential(nn.ReLU()) * 0

    def test_names(self) -> None:
        s = nn.Sequential(OrderedDict([("a", nn.Linear(1, 1)), ("b", nn.ReLU())]))
        self.assertIs(s.a, s[0])
        self.assertEqual(list(s.state_dict()), ["a.weight", "a.bias"])
        self.assertEqual(list(s[:1]._modules), ["a"])

    def test_subclasses_slice_to_themselves(self) -> None:
        class Mine(nn.Sequential):
            pass

        self.assertIsInstance(Mine(nn.ReLU(), nn.Tanh())[:1], Mine)
        self.assertIsInstance(copy.deepcopy(Mine(nn.ReLU())), Mine)


class ModuleListTest(unittest.TestCase):
    def test_is_a_list_of_registered_modules(self) -> None:
        m = nn.ModuleList([nn.Linear(1, 1)])
        m.append(nn.ReLU()).extend([nn.Tanh(), nn.ELU()])
        m += [nn.SELU()]
        m.insert(1, nn.GELU())
        self.assertEqual(kinds(m), ["Linear", "GELU", "ReLU", "Tanh", "ELU", "SELU"])
        self.assertIsInstance(m[1:3], nn.ModuleList)
        self.assertEqual(list(m[1:3]._modules), ["0", "1"])
        self.assertIsInstance(m[-1], nn.SELU)
        self.assertIsInstance(m.pop(-1), nn.SELU)
        del m[0]
        self.assertEqual(list(m._modules), ["0", "1", "2", "3"])
        m[0] = nn.Linear(2, 2)
        self.assertEqual(list(m.state_dict()), ["0.weight", "0.bias"])
        self.assertEqual(len(m + [nn.ReLU()]), 5)
        self.assertIn(m[0], m)
        with self.assertRaises(NotImplementedError):
            m(1)


class ModuleDictTest(unittest.TestCase):
    def test_is_a_dict_of_registered_modules(self) -> None:
        m = nn.ModuleDict({"b": nn.Linear(1, 1), "a": nn.ReLU()})
        m["c"] = nn.Tanh()
        m.update([("d", nn.ELU())])
        self.assertEqual(list(m), ["b", "a", "c", "d"])
        self.assertEqual(list(m.keys()), list(m))
        self.assertEqual(kinds(m.values()), ["Linear", "ReLU", "Tanh", "ELU"])
        self.assertEqual([k for k, _ in m.items()], list(m))
        self.assertIn("a", m)
        self.assertIsInstance(m.pop("a"), nn.ReLU)
        del m["c"]
        self.assertEqual(len(m), 2)
        self.assertEqual([n for n, _ in m.named_parameters()], ["b.weight", "b.bias"])
        with self.assertRaises(KeyError):
            m["a"]
        m.clear()
        self.assertEqual(len(m), 0)


class ParameterListTest(unittest.TestCase):
    def test_tensors_become_parameters(self) -> None:
        p = nn.ParameterList([torch.ones(2), nn.Parameter(torch.zeros(3))])
        p.append(torch.ones(1)).extend([nn.Parameter(torch.ones(4))])
        self.assertEqual([n for n, _ in p.named_parameters()], ["0", "1", "2", "3"])
        self.assertTrue(all(isinstance(v, nn.Parameter) for v in p))
        self.assertEqual(len(p), 4)
        self.assertEqual(len(p[1:3]), 2)
        p[0] = torch.zeros(5)
        self.assertEqual(p[0].numel(), 5)
        self.assertEqual(p[-1].numel(), 4)
        with self.assertRaises(IndexError):
            p[4]
        q = nn.ParameterList(["word", torch.ones(1)])
        self.assertEqual(q[0], "word")
        self.assertEqual(len(list(q.parameters())), 1)


class ParameterDictTest(unittest.TestCase):
    def test_tensors_become_parameters(self) -> None:
        p = nn.ParameterDict({"b": torch.ones(2), "a": nn.Parameter(torch.zeros(3))})
        self.assertEqual(list(p), ["a", "b"])
        p["c"] = torch.ones(1)
        self.assertEqual([n for n, _ in p.named_parameters()], ["a", "b", "c"])
        self.assertIsInstance(p["b"], nn.Parameter)
        self.assertEqual(p.get("x", 5), 5)
        self.assertEqual(p.setdefault("d", torch.ones(7)).numel(), 7)
        self.assertEqual(p.popitem()[0], "d")
        self.assertEqual(p.pop("c").numel(), 1)
        self.assertEqual(list(reversed(p)), ["b", "a"])
        q = p | nn.ParameterDict({"z": torch.ones(1)})
        self.assertEqual(list(q), ["a", "b", "z"])
        self.assertIs(q["a"], p["a"])
        self.assertEqual(list(p.fromkeys(["u", "v"], 3).values()), [3, 3])
        p |= {"y": torch.ones(2)}
        self.assertIn("y", p)
        p.clear()
        self.assertEqual(list(p.parameters()), [])


if __name__ == "__main__":
    unittest.main()
