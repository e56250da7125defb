"""tools/check_budgets.py fails when a budget is passed, and skips by name when there is nothing to measure."""

import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "check_budgets.py")
COMPILER = os.environ.get("CXX", "c++")


class Budgets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name: str, text: str, mode: int = 0o644) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def run_tool(self, *arguments: str):
        done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_size_counts_the_stripped_library(self):
        source = self.write("a.cpp", "static char room[2000000] = {1}; char* get() { return room; }\n")
        library = os.path.join(self.folder, "liba.so")
        subprocess.run([COMPILER, "-g", "-shared", "-fPIC", source, "-o", library], check=True)
        self.assertEqual(self.run_tool("size", "--library", library, "--limit-mb", "2.5")[0], 0)
        status, output = self.run_tool("size", "--library", library, "--limit-mb", "1.9")
        self.assertEqual(status, 1)
        self.assertIn("OVER", output)

    def test_compile_time_memory_and_failure(self):
        source = self.write("a.cpp", "int main() {}\n")
        command = ["compile", "--source", source, "--limit-s", "20", "--limit-mb", "400", "--", COMPILER]
        self.assertEqual(self.run_tool(*command)[0], 0)
        self.assertEqual(self.run_tool(*[("0.0001" if a == "20" else a) for a in command])[0], 1)
        self.assertEqual(self.run_tool(*[("1" if a == "400" else a) for a in command])[0], 1)
        self.write("a.cpp", "int main() { return no_such_name; }\n")
        self.assertEqual(self.run_tool(*command)[0], 1)

    def test_compile_limit_grows_with_the_yardstick_alone(self):
        source = self.write("empty.cpp", "int main() {}\n")
        command = ["compile", "--source", source, "--limit-s", "1e-6", "--limit-mb", "400", "--yardstick", source]
        self.assertEqual(self.run_tool(*command, "--yardstick-s", "1e-12", "--", COMPILER)[0], 0)
        self.assertEqual(self.run_tool(*command, "--yardstick-s", "100", "--", COMPILER)[0], 1)

    def test_start_up_time_memory_and_failure(self):
        slow = self.write("slow", "#!/bin/sh\nsleep 0.05\n", 0o755)
        self.assertEqual(self.run_tool("start-up", "--program", slow, "--limit-ms", "5000", "--limit-mb", "300")[0], 0)
        self.assertEqual(self.run_tool("start-up", "--program", slow, "--limit-ms", "40", "--limit-mb", "300")[0], 1)
        fat = self.write("fat", f"#!/bin/sh\nexec {sys.executable} -c 'x = bytearray(60 * 10**6)'\n", 0o755)
        self.assertEqual(self.run_tool("start-up", "--program", fat, "--limit-ms", "9000", "--limit-mb", "50")[0], 1)
        bad = self.write("bad", "#!/bin/sh\nexit 3\n", 0o755)
        status, output = self.run_tool("start-up", "--program", bad, "--limit-ms", "9000", "--limit-mb", "300")
        self.assertEqual(status, 1)
        self.assertIn("status 3", output)

    def test_absent_thing_is_skipped_by_name(self):
        status, output = self.run_tool("size", "--library", os.path.join(self.folder, "none.so"), "--limit-mb", "1")
        self.assertEqual(status, 77)
        self.assertRegex(output, r"SKIP: .*none\.so does not exist")


if __name__ == "__main__":
    unittest.main()
