"""tools/run_tests.py counts, names and closes as it promises."""

import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "run_tests.py")
GOOD = 'add_test(good "/bin/true")\n'
BAD = 'add_test(bad "/bin/sh" "-c" "echo the reason; exit 3")\n'
ABSENT = 'add_test(absent "/nonexistent/program")\n'
SCRIPT_SKIP = ('add_test(script "/bin/sh" "-c" "echo SKIP: no peer here; exit 77")\n'
               "set_tests_properties(script PROPERTIES SKIP_RETURN_CODE 77)\n")
GTEST_SKIP = ('add_test(A.B "/bin/sh" "-c" "printf \'a.cpp:12: Skipped\\\\nbecause of it\\\\n\\\\n[  SKIPPED ] A.B\\\\n\'")\n'
              'set_tests_properties(A.B PROPERTIES SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]")\n')


class RunTests(unittest.TestCase):
    def run_tool(self, tests: str, *arguments: str):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                file.write(tests)
            done = subprocess.run([sys.executable, TOOL, folder, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    def test_all_good(self):
        status, lines = self.run_tool(GOOD)
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed"))

    def test_failure_shows_its_output(self):
        status, lines = self.run_tool(GOOD + BAD)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("the reason", lines)
        self.assertIn("failed: bad", lines)

    def test_missing_program_is_a_failure(self):
        status, lines = self.run_tool(GOOD + ABSENT)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed"))

    def test_skips_are_named_with_their_reason(self):
        status, lines = self.run_tool(GOOD + SCRIPT_SKIP + GTEST_SKIP)
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 2 skipped"))
        self.assertIn("skipped: script: no peer here", lines)
        self.assertIn("skipped: A.B: because of it", lines)

    def test_nothing_run_is_no_success(self):
        self.assertEqual(self.run_tool(SCRIPT_SKIP)[0], 1)
        self.assertEqual(self.run_tool(GOOD, "--filter", "nothing_like_it")[0], 1)


if __name__ == "__main__":
    unittest.main()
