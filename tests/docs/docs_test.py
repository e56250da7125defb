"""docs/porting.md's blocks of C++ compile; doxygen finds nothing to say about the public headers."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("porting.md",)
BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What stands at the level of files: blocks are otherwise bodies of functions.
MODULE = re.compile(r"^struct \w+ : .*?^};\n(?:TORCH|ATHANOR)_MODULE\(\w+\);\n", re.MULTILINE | re.DOTALL)


def program_of(blocks: list) -> str:
    parts = ["#include <torch/torch.h>\n#include <iostream>\n"]
    for number, block in enumerate(blocks):
        outside = "".join(MODULE.findall(block))
        body = MODULE.sub("", block)
        parts.append(f"namespace block_{number} {{\n{outside}void run() {{\n{body}}}\n}}\n")
    return "".join(parts)


class Blocks(unittest.TestCase):
    def compile(self, text: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "blocks.cpp")
            source.write_text(text, encoding="utf-8")
            return subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{ROOT}/compat",
                                   f"-I{ROOT}", f"-I{os.environ['ATHANOR_GENERATED']}", str(source)],
                                  capture_output=True, text=True, check=False)

    def test_every_block_of_cpp_compiles(self):
        for page in PAGES:
            blocks = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
            self.assertGreater(len(blocks), 2, page)
            done = self.compile(program_of(blocks))
            self.assertEqual(done.returncode, 0, done.stderr[-4000:])

    def test_a_wrong_block_is_found(self):
        self.assertNotEqual(self.compile(program_of(["torch::no_such_function();\n"])).returncode, 0)


class Reference(unittest.TestCase):
    def run_doxygen(self, extra: str = "", fails: bool = False) -> str:
        """What it warned of."""
        if not shutil.which("doxygen"):
            self.skipTest("doxygen is not installed: the API reference is not made")
        with tempfile.TemporaryDirectory() as folder:
            settings = (ROOT / "docs" / "Doxyfile").read_text(encoding="utf-8")
            done = subprocess.run(["doxygen", "-"], input=settings + "\nGENERATE_HTML = NO\nGENERATE_XML = YES\n" + extra,
                                  cwd=ROOT, capture_output=True, text=True, check=False,
                                  env={**os.environ, "ATHANOR_DOCS": folder})
            self.assertEqual(done.returncode != 0, fails, done.stderr[-4000:])
            self.assertTrue(os.path.exists(os.path.join(folder, "xml", "index.xml")), done.stderr)
            return done.stderr

    def test_reference_has_no_warnings(self):
        self.assertEqual(self.run_doxygen(), "")

    def test_a_wrong_comment_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "wrong.h").write_text("/// \\param nobody is no parameter\nint f(int x);\n",
                                                       encoding="utf-8")
            self.assertIn("nobody", self.run_doxygen(f"INPUT = {folder}\n", fails=True))


if __name__ == "__main__":
    ran = unittest.main(verbosity=2, exit=False).result
    if ran.wasSuccessful() and ran.testsRun and len(ran.skipped) == ran.testsRun:
        print("SKIP: " + "; ".join(sorted({reason for _, reason in ran.skipped})))
        sys.exit(77)
    sys.exit(0 if ran.wasSuccessful() and ran.testsRun else 1)
