"""torch.nn called here and in PyTorch, call by call: values, gradients, states, prints, and how calls fail.

Skipped where no Python has torch: ATHANOR_PEER_PYTHON names one, else python3 is asked.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import tempfile
import unittest
import warnings

import athanor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import nn_cases  # noqa: E402
import peer  # noqa: E402

# What differs and is meant to, with the reason.
MEANT = {
    "CrossMapLRN2d": "PyTorch's backward of this layer does not belong to its forward (whose window starts late)",
    "CTCLoss": "the gradient is that of the log-probabilities as free variables; the one through log_softmax agrees",
}
# Gradients in float64 that PyTorch computes with constants rounded to float32.
ROUNDED = ("Hardsigmoid", "CELU")


def peer_results() -> dict:
    """What PyTorch gives. Raises SkipTest where no Python has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results")
        peer.run(nn_cases.__file__, "torch", path)
        with open(path, "rb") as f:
            return pickle.load(f)


def same(a: object, b: object, tolerance: float) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= tolerance * max(1.0, abs(a))
    return a == b


def failed(result: object) -> bool:
    return isinstance(result, tuple) and len(result) == 3 and result[0] == "error"


class Parity(unittest.TestCase):
    theirs: dict | None = None
    ours: dict
    reason: str

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.theirs = peer_results()
        except unittest.SkipTest as skip:
            cls.reason = str(skip)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cls.ours = nn_cases.run(athanor)

    def setUp(self) -> None:
        if self.theirs is None:
            self.skipTest(self.reason)

    def compare(self, kind: str) -> None:
        for name, theirs in self.theirs[kind].items():
            ours = self.ours[kind][name]
            tolerance = 1e-10 if name.startswith("float64") else 1e-5
            with self.subTest(name):
                self.assertFalse(failed(theirs), f"a call that PyTorch refuses is no case: {theirs}")
                self.assertFalse(failed(ours), ours)
                if not isinstance(theirs, dict):
                    self.assertTrue(same(theirs, ours, tolerance), f"\nPyTorch: {theirs}\nhere:    {ours}")
                    continue
                for part, value in theirs.items():
                    layer = name.split()[1].split("(")[0]
                    if part == "grads" and layer in MEANT:
                        continue
                    here = ours.get(part)
                    allowed = max(tolerance, 1e-7) if layer in ROUNDED else tolerance
                    self.assertTrue(same(value, here, allowed), f"{part}\nPyTorch: {value}\nhere:    {here}")

    def test_layers(self) -> None:
        self.compare("layers")

    def test_functions(self) -> None:
        self.compare("functions")

    def test_refusals_have_the_same_class(self) -> None:
        for name, theirs in self.theirs["errors"].items():
            with self.subTest(name):
                self.assertTrue(failed(theirs), "a call that PyTorch accepts is no case")
                ours = self.ours["errors"][name]
                self.assertTrue(failed(ours), "accepted here")
                self.assertEqual(ours[1], theirs[1], f"\nPyTorch: {theirs[2]}\nhere:    {ours[2]}")


if __name__ == "__main__":
    unittest.main()
