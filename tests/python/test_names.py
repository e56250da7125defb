"""What PyTorch's reference names and the library has is there under `athanor`."""
import pathlib
import sys
import unittest

import athanor

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import missing  # noqa: E402

# What the library has and Python does not, with the reason.
LEFT_OUT: dict = {}


def is_reachable(name):
    place = athanor
    for part in name.split(".")[1:]:
        if not hasattr(place, part):
            return False
        place = getattr(place, part)
    return True


class Names(unittest.TestCase):
    def test_what_the_library_has_is_reachable(self):
        library = missing.Library()
        names = (ROOT / "tools" / "pytorch_names.txt").read_text().split()
        present = [n for n in names if library.has(n)]
        self.assertGreater(len(present), 900)
        absent = {n for n in present if not is_reachable(n)}
        self.assertEqual(absent - set(LEFT_OUT), set(), "bind them, or say why not in LEFT_OUT")
        self.assertEqual(set(LEFT_OUT) - absent, set(), "reachable by now")

    def test_the_page_of_what_is_not_here_marks_what_python_has(self):
        found, _, _, _ = missing.entries()
        reachable = {name for _, names in found for name in names if is_reachable(name)}
        self.assertEqual(reachable - missing.IN_PYTHON, set(), "mark them in tools/missing.py")
        self.assertEqual(missing.IN_PYTHON - reachable, set(), "not there, or in the library by now")

    def test_parts_of_ops_are_no_functions_and_no_methods(self):
        for name in ("to_dtype", "rdiv", "nonzero_numpy", "batch_norm_relu", "log_sigmoid"):
            self.assertTrue(hasattr(athanor._C.ops, name))
            self.assertFalse(hasattr(athanor, name) or hasattr(athanor.Tensor, name), name)
        for name in ("contiguous", "view", "normal_"):
            self.assertFalse(hasattr(athanor, name), name)
            self.assertTrue(hasattr(athanor.Tensor, name))

    def test_what_is_not_there_is_no_attribute(self):
        self.assertFalse(is_reachable("torch.fft.fft"))
        self.assertFalse(is_reachable("torch.Tensor.to_sparse"))
        self.assertFalse(is_reachable("torch.autograd.forward_ad.dual_level"))


if __name__ == "__main__":
    unittest.main()
