"""examples/gpt.cpp: learns, continues exactly where it stopped, writes."""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from program_test import interrupt  # noqa: E402

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

    def test_an_interrupted_training_continues_bit_by_bit(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            # It never comes to its end, however late the signal is.
            status, output = interrupt([PROGRAM, *TINY, "--steps", "1000000000", "--checkpoint", self.path("stop")],
                                       which, lambda lines: len(losses("".join(lines))) == 2)
            self.assertEqual(status, 128 + which, output)
            self.assertIn("continue with --resume " + self.path("stop"), output)
            steps = ("--steps", str(20 * (len(losses(output)) + 2)))
            whole = run(*steps, "--save-model", self.path("whole")).stdout
            self.assertEqual(len(losses(whole)), len(losses(output)) + 2)
            rest = run(*steps, "--resume", self.path("stop"), "--save-model", self.path("rest")).stdout
            self.assertEqual(losses(whole), losses(output) + losses(rest), f"signal {which}")
            with open(self.path("whole"), "rb") as a, open(self.path("rest"), "rb") as b:
                self.assertEqual(a.read(), b.read(), f"signal {which}")
            self.assertEqual(sorted(os.listdir(self.folder)), ["rest", "stop", "whole"])
            os.remove(self.path("stop"))

    def test_a_program_that_ignores_the_signal_is_killed_and_shows_what_it_said(self):
        deaf = ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"]
        with self.assertRaisesRegex(AssertionError, "after 2 s, after the signal: deaf"):
            interrupt(deaf, signal.SIGTERM, lambda lines: True, deadline_s=2)

    def test_interrupted_without_a_checkpoint_it_says_what_to_give(self):
        status, output = interrupt([PROGRAM, *TINY, "--steps", "1000000000"], signal.SIGINT,
                                   lambda lines: len(losses("".join(lines))) == 1)
        self.assertEqual(status, 128 + signal.SIGINT, output)
        self.assertIn("give --checkpoint", output)

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

    def refused_at_once(self, *flags: str) -> str:
        done = run("--steps", "20", *flags, code=1)
        self.assertEqual(losses(done.stdout), [])
        return done.stderr

    def test_refuses_before_the_first_step_what_it_could_not_write(self):
        for flag in ("--save-model", "--checkpoint"):
            self.assertIn(flag + ": cannot write", self.refused_at_once(flag, self.path("nowhere/file")))
            self.assertIn(flag + ": '" + self.folder, self.refused_at_once(flag, self.folder))

    def test_refuses_before_the_first_step_a_prompt_that_it_cannot_continue(self):
        with open(self.path("input.txt"), "w", encoding="utf-8") as file:
            file.write("abc, " * 200)
        sample = ("--sample", "1", "--data", self.folder)
        self.assertIn("--prompt: a line break does not occur", self.refused_at_once(*sample))
        self.assertIn("--prompt: '%' does not occur", self.refused_at_once(*sample, "--prompt", "a%"))
        self.assertIn("--prompt: expected at least one", self.refused_at_once(*sample, "--prompt", ""))
        self.assertIn("5 kinds", run("--steps", "1", "--data", self.folder).stdout)

    def test_refuses_a_checkpoint_of_an_impossible_step(self):
        run("--steps", "1", "--checkpoint", self.path("state"))
        with open(self.path("state"), "rb") as file:
            good = file.read()
        end = 8 + struct.unpack("<Q", good[:8])[0]
        for step in (-1, -(1 << 63), 1 << 62):
            header = json.loads(good[8:end])
            header["__metadata__"]["step"] = str(step)
            text = json.dumps(header).encode()
            with open(self.path("bad"), "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + good[end:])
            self.assertIn(f"step is {step}", self.refused_at_once("--resume", self.path("bad")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
