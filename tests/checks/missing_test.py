"""tools/missing.py finds what is here, what is not, and names without a reason."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import missing  # noqa: E402


class Missing(unittest.TestCase):
    def setUp(self):
        self.library = missing.Library()

    def test_knows_what_is_here(self):
        for name in ("torch.matmul", "torch.absolute", "torch.Tensor.masked_fill", "torch.nn.Linear", "torch.nn.Conv2d",
                     "torch.nn.ConvTranspose3d", "torch.nn.AdaptiveAvgPool1d", "torch.nn.functional.max_pool2d",
                     "torch.nn.init.kaiming_uniform_", "torch.optim.Adam", "torch.linalg.inv"):
            self.assertTrue(self.library.has(name), name)

    def test_knows_what_is_not(self):
        for name in ("torch.fft.fft", "torch.nn.LazyLinear", "torch.frobnicate", "torch.linalg.svd"):
            self.assertFalse(self.library.has(name), name)

    def test_asks_for_reasons(self):
        reasons = missing.REASONS
        try:
            missing.REASONS = [r for r in reasons if "fft" not in r[0]]
            self.assertIn("torch.fft.fft", missing.entries()[1])
        finally:
            missing.REASONS = reasons

    def test_a_page_that_is_old_fails_the_check(self):
        page = missing.PAGE
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                missing.PAGE = pathlib.Path(folder, "page.md")
                missing.main([])
                self.assertEqual(missing.main(["--check"]), 0)
                written = missing.PAGE.read_text()
                missing.PAGE.write_text(written + "\n`matmul`\n")
                self.assertEqual(missing.main(["--check"]), 1)
            finally:
                missing.PAGE = page
        self.assertIn("is not what tools/missing.py writes", said.getvalue())

    def test_page_counts_and_sorts(self):
        text = missing.page([("why", ["torch.b", "torch.a"]), ("other", []), ("why", ["torch.nn.C"])], 9, 3)
        self.assertIn("9 names, 3 of them", text)
        self.assertIn("## why\n\n`a`, `b`, `nn.C`\n", text)


if __name__ == "__main__":
    unittest.main()
