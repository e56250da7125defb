"""The type stubs, read by a type checker."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import mypy  # noqa: F401
except ImportError:
    mypy = None

PROGRAM = """
import athanor as torch

x = torch.zeros(2, 3, dtype=torch.float32, requires_grad=True)
y: torch.Tensor = (x + 1).sum(0).relu()
z = torch.cat((x, x), dim=1).view(2, -1)
n: int = x.size(0)
values, indices = torch.sort(y)
x.backward(torch.ones(2, 3))
with torch.no_grad():
    x.add_(1)
"""
WRONG = {"torch.relu(3)": "arg-type", "torch.zeros(2).no_such_method()": "attr-defined", "n: str = torch.ones(1).dim()": "assignment"}


@unittest.skipIf(mypy is None, "mypy is not installed")
class Stubs(unittest.TestCase):
    def check(self, *programs):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for i, text in enumerate(programs):
                files.append(pathlib.Path(folder) / f"program_{i}.py")
                files[-1].write_text("import athanor as torch\n" + text + "\n")
            package = pathlib.Path(os.environ["ATHANOR_BUILD"]) / "python"
            return subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", folder + "/cache", *map(str, files)], capture_output=True,
                                  text=True, env={**os.environ, "MYPYPATH": str(package)}, timeout=250).stdout

    def test_right_programs_pass_and_wrong_ones_do_not(self):
        report = self.check(PROGRAM, *WRONG)
        lines = [line for line in report.splitlines() if "error:" in line]
        for i, code in enumerate(WRONG.values(), 1):
            self.assertTrue(any(f"program_{i}.py" in line and f"[{code}]" in line for line in lines), report)
        self.assertEqual(len(lines), len(WRONG), report)


if __name__ == "__main__":
    unittest.main()
