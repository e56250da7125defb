"""tools/format.py finds what it is meant to find, mends it, and then finds nothing."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "format.py")


@unittest.skipUnless(shutil.which("clang-format"), "clang-format is not installed")
class Format(unittest.TestCase):
    def run_tool(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False)

    def test_wrong_file_is_found_and_mended(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.cpp")
            with open(path, "w", encoding="utf-8") as file:
                file.write("int  f( int x ){return x ;}\n")
            found = self.run_tool(path)
            self.assertEqual(found.returncode, 1)
            self.assertIn("a.cpp: not formatted; run make format", found.stdout)
            self.assertEqual(self.run_tool("--fix", path).returncode, 0)
            again = self.run_tool(path)
            self.assertEqual((again.returncode, again.stdout), (0, ""))


if __name__ == "__main__":
    ran = unittest.main(verbosity=2, exit=False).result
    if ran.skipped:
        print("SKIP: " + ran.skipped[0][1])
        sys.exit(77)
    sys.exit(0 if ran.wasSuccessful() else 1)
