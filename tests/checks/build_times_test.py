"""tools/build_times.py reads ninja's log: the last run of each step, steps of several outputs once."""

import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "build_times.py")
LOG = """# ninja log v5
0\t9000\t1\tCMakeFiles/athanor.dir/athanor/ops/unary.cpp.o\taaaa
100\t3100\t2\tCMakeFiles/athanor.dir/athanor/ops/unary.cpp.o\tbbbb
0\t500\t2\ttests/CMakeFiles/test_ops.dir/ops/pad_test.cpp.o\tcccc
500\t1500\t2\tlib/libathanor.so\tdddd
500\t1500\t2\tlib/libathanor.so.0\tdddd
"""


class BuildTimes(unittest.TestCase):
    def run_tool(self, text: str):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, ".ninja_log"), "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True)
        return done.returncode, done.stdout.split("\n"), done.stderr

    def test_last_run_counts_and_slowest_comes_first(self):
        status, lines, _ = self.run_tool(LOG)
        self.assertEqual(status, 0)
        self.assertEqual([line.split() for line in lines[:3]],
                         [["3.0", "s", "athanor/ops/unary.cpp"], ["1.0", "s", "lib/libathanor.so"],
                          ["0.5", "s", "tests/ops/pad_test.cpp"]])
        self.assertEqual(lines[-2].split()[:4], ["4.5", "s", "in", "all,"])

    def test_other_files_are_refused(self):
        status, _, error = self.run_tool("nothing of the kind\n")
        self.assertEqual(status, 1)
        self.assertIn("not a log of ninja", error)


if __name__ == "__main__":
    unittest.main()
