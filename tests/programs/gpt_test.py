"""examples/gpt.cpp: learns, continues exactly where it stopped, writes."""

import os
import re
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.environ["ATHANOR_BIN"], "gpt")
DEADLINE_S = 200
TINY = ("--layers", "2", "--width", "32", "--heads", "2", "--context", "32", "--batch-size", "4", "--warmup", "5",
        "--eval-interval", "20", "--eval-batches", "4", "--lr", "1e-2", "--no-progress")


def run(*flags: str, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run((PROGRAM, *TINY, *flags), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode != code:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def losses(output: str) -> list:
    return [float(x) for x in re.findall(r"validation loss ([0-9.]+)", output)]


class Gpt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def test_learns_its_own_text_and_writes(self):
        output = run("--steps", "120", "--sample", "40", "--prompt", "the ").stdout
        self.assertIn("No --data", output)
        self.assertLess(losses(output)[-1], 0.7 * losses(output)[0])
        self.assertTrue(output.rstrip("\n").split("\n")[-1].startswith("the ") or "\nthe " in output, output)

    def test_continues_exactly_where_it_stopped(self):
        whole = run("--steps", "40", "--save-model", self.path("whole")).stdout
        run("--steps", "20", "--checkpoint", self.path("state"))
        rest = run("--steps", "40", "--resume", self.path("state"), "--save-model", self.path("rest")).stdout
        self.assertEqual(losses(whole)[-1], losses(rest)[-1])
        with open(self.path("whole"), "rb") as a, open(self.path("rest"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_reads_a_folder_or_a_file(self):
        with open(self.path("input.txt"), "w", encoding="utf-8") as file:
            file.write("abc, " * 200)
        for data in (self.folder, self.path("input.txt")):
            self.assertIn("5 kinds", run("--steps", "1", "--data", data).stdout)

    def test_refuses_what_does_not_fit(self):
        self.assertIn("cannot read", run("--steps", "1", "--data", self.path("nothing"), code=1).stderr)
        self.assertIn("does not occur", run("--steps", "0", "--sample", "1", "--prompt", "%", code=1).stderr)
        run("--steps", "1", "--checkpoint", self.path("state"))
        with open(self.path("input.txt"), "w", encoding="utf-8") as file:
            file.write("abc, " * 200)
        refused = run("--steps", "2", "--data", self.folder, "--resume", self.path("state"), code=1).stderr
        self.assertIn("was written with 2 layers", refused)


if __name__ == "__main__":
    unittest.main(verbosity=2)
