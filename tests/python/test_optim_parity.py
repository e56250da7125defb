"""Optimizers and schedules beside PyTorch's: where steps lead, states, options, prints, errors."""

from __future__ import annotations

import math
import os
import pickle
import tempfile
import unittest

import athanor
import optim_cases
import peer


def difference(a: object, b: object) -> float:
    """The largest difference of two structures of numbers; infinite if they are not alike."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((difference(a[k], b[k]) for k in a), default=0.0)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return max((difference(x, y) for x, y in zip(a, b)), default=0.0)
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) / max(1.0, abs(b))  # type: ignore[operator,arg-type]
    return 0.0 if a == b else math.inf


class OptimParity(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results")
            peer.run(optim_cases.__file__, "torch", path)
            with open(path, "rb") as f:
                cls.theirs = pickle.load(f)
        cls.ours = optim_cases.run(athanor)

    def test_steps_lead_where_pytorchs_lead(self) -> None:
        for name, theirs in self.theirs["optimizers"].items():
            ours = self.ours["optimizers"][name]
            # NAdam's product of momenta is kept in float32, rounded elsewhere.
            tolerance = 2e-6 if name.endswith("float32") else 1e-8 if name.startswith("NAdam") else 1e-12
            with self.subTest(name):
                self.assertLess(difference(ours["path"], theirs["path"]), tolerance)
                self.assertLess(difference(ours["state"], theirs["state"]), 10 * tolerance)
                self.assertEqual(ours["groups"], theirs["groups"])
                self.assertEqual(ours["repr"], theirs["repr"])

    def test_lbfgs_goes_pytorchs_way(self) -> None:
        for name, theirs in self.theirs["lbfgs"].items():
            with self.subTest(name):
                self.assertLess(difference(self.ours["lbfgs"][name], theirs), 1e-7)

    def test_schedules_give_pytorchs_rates(self) -> None:
        for kind in ("schedules", "plateaus"):
            for name, theirs in self.theirs[kind].items():
                with self.subTest(name):
                    self.assertLess(difference(self.ours[kind][name], theirs), 1e-9)

    def test_errors_are_of_pytorchs_classes(self) -> None:
        for name, theirs in self.theirs["failures"].items():
            with self.subTest(name):
                self.assertEqual(self.ours["failures"][name], theirs)


if __name__ == "__main__":
    unittest.main()
