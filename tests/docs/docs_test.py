"""docs/porting.md's blocks of C++ compile; doxygen finds nothing to say about the public headers, and
describes every operation."""

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


# The rest of a program that a page shows has names of its own, this library's: its one header is to be enough.
LIBTORCH = re.compile(r"\b(?:torch|at|c10)::|\bTORCH_")


FIRST_PROGRAM = """athanor::nn::Sequential net(athanor::nn::Linear(2, 3));
std::cout << athanor::nn::summary(net.ptr()) << net << athanor::ones({2}) << "\\n";
const athanor::Tensor x = athanor::ones({2, 3});
std::cout << x.sizes() << x.strides() << x.dtype() << x.scalar_type() << x.device() << x.options() << x.layout();
std::cout << x.device().type() << athanor::Scalar(3) << athanor::MemoryFormat::Contiguous;
const athanor::profiler::RecordFunction scope("x");
"""


def program_of(blocks: list, header: str) -> str:
    parts = [f"#include <{header}>\n#include <iostream>\n"]
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
            moved = [b for b in blocks if LIBTORCH.search(b)]
            own = [b for b in blocks if not LIBTORCH.search(b)]
            self.assertGreater(min(len(moved), len(own)), 0, page)
            for header, some in (("torch/torch.h", moved), ("athanor/athanor.h", [*own, FIRST_PROGRAM])):
                done = self.compile(program_of(some, header))
                self.assertEqual(done.returncode, 0, done.stderr[-4000:])

    def test_a_wrong_block_is_found(self):
        self.assertNotEqual(self.compile(program_of(["torch::Tensor x;\n"], "athanor/athanor.h")).returncode, 0)


class Reference(unittest.TestCase):
    def run_doxygen(self, extra: str = "", fails: bool = False) -> tuple:
        """What it warned of, and the names of what it describes."""
        if not shutil.which("doxygen"):
            self.skipTest("doxygen is not installed: the API reference is not made")
        with tempfile.TemporaryDirectory() as folder:
            settings = (ROOT / "docs" / "Doxyfile").read_text(encoding="utf-8")
            done = subprocess.run(["doxygen", "-"], input=settings + "\nGENERATE_HTML = NO\nGENERATE_XML = YES\n" + extra,
                                  cwd=ROOT, capture_output=True, text=True, check=False,
                                  env={**os.environ, "ATHANOR_DOCS": folder})
            self.assertEqual(done.returncode != 0, fails, done.stderr[-4000:])
            self.assertTrue(os.path.exists(os.path.join(folder, "xml", "index.xml")), done.stderr)
            names = set()
            for page in pathlib.Path(folder, "xml").glob("*.xml"):
                names |= set(re.findall(r"<name>(\w+)</name>", page.read_text(encoding="utf-8")))
            return done.stderr, names

    def test_reference_has_every_operation_and_no_warnings(self):
        warnings, names = self.run_doxygen()
        self.assertEqual(warnings, "")
        for list_of in ("functions.inc", "methods.inc"):
            text = pathlib.Path(os.environ["ATHANOR_GENERATED"], "athanor", "ops", list_of).read_text(encoding="utf-8")
            declared = set(re.findall(r"^[^/\n]*?\b(\w+)\(", text, re.MULTILINE))
            self.assertGreater(len(declared), 300, list_of)
            self.assertEqual(declared - names, set(), "operations without a place in the reference")

    def test_a_wrong_comment_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "wrong.h").write_text("/// \\param nobody is no parameter\nint f(int x);\n",
                                                       encoding="utf-8")
            self.assertIn("nobody", self.run_doxygen(f"INPUT = {folder}\n", fails=True)[0])


if __name__ == "__main__":
    ran = unittest.main(verbosity=2, exit=False).result
    if ran.wasSuccessful() and ran.testsRun and len(ran.skipped) == ran.testsRun:
        print("SKIP: " + "; ".join(sorted({reason for _, reason in ran.skipped})))
        sys.exit(77)
    sys.exit(0 if ran.wasSuccessful() and ran.testsRun else 1)
