"""Every function shared with PyTorch, called with PyTorch's own samples (parity.py, in a Python that has PyTorch)."""
import os
import pathlib
import subprocess
import sys
import unittest

PROBE = "import sys, torch, expecttest, torch.testing._internal.common_methods_invocations, athanor; print(torch.__version__)"


class Parity(unittest.TestCase):
    def test_shared_functions_give_what_pytorch_gives(self):
        python = os.environ.get("ATHANOR_PEER_PYTHON", sys.executable)
        probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=200)
        if probe.returncode:
            self.skipTest(f"{python} lacks PyTorch with its test samples, or is another Python than this one: "
                          + probe.stderr.strip().splitlines()[-1])
        script = pathlib.Path(__file__).with_name("parity.py")
        run = subprocess.run([python, str(script), "--samples", "12"], capture_output=True, text=True, timeout=280)
        self.assertEqual(run.returncode, 0, run.stdout[-6000:] + run.stderr[-2000:])
        print(run.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
