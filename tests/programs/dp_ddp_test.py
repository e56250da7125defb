"""`athanor bench dp_ddp`: three ways of one training, their figures and charts."""

import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

ATHANOR = os.path.join(os.environ["ATHANOR_BIN"], "athanor")
WAYS = ["one thread", "DataParallel", "DistributedDataParallel"]


def run(*flags: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([ATHANOR, "bench", "dp_ddp", "--rounds", "2", "--steps", "1", *flags], capture_output=True,
                          text=True, timeout=200, check=False, env={**os.environ, **variables})


class DpDdp(unittest.TestCase):
    def test_measures_the_same_training_three_times(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            done = run("--replicas", "3", "--batch", "12", "--json", path, "--charts", os.path.join(folder, "new"),
                       ATHANOR_NUM_THREADS="6")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
            self.assertEqual([row["way"] for row in rows], WAYS)
            self.assertEqual([len(row["memory_mb"]) for row in rows], [1, 3, 3])
            self.assertEqual([row["threads_each"] for row in rows], [1, 1, 1])
            self.assertIn("3 replicas of one thread", done.stdout)
            self.assertIn("moved, computed MB", done.stdout)
            for row in rows:
                self.assertGreater(row["seconds"], 0)
                self.assertAlmostEqual(row["loss"], rows[0]["loss"], places=4)
                # Weights, their gradients and momenta: 1.2 million numbers each, and on a replica at least the weights.
                for mb in row["memory_mb"]:
                    self.assertGreater(mb, 4.8)
                self.assertIn(row["way"], done.stdout)
            # The first device of DataParallel alone has momenta, and every rank.
            self.assertGreater(rows[1]["memory_mb"][0], max(rows[1]["memory_mb"][1:]))
            self.assertGreater(min(rows[2]["memory_mb"]), 3 * 4.8)
            for name, words in (("time", "Time of a step (ms)"), ("memory", "Memory of the fullest device (MB)")):
                root = xml.etree.ElementTree.parse(os.path.join(folder, "new", f"dp_ddp_{name}.svg")).getroot()
                written = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
                for text in [*WAYS, words]:
                    self.assertIn(text, written)

    def test_refuses_flags_that_cannot_work(self):
        for flags, words in ((("--replicas", "3", "--batch", "8"), "cannot be shared equally by 3 replicas"),
                             (("--replicas", "1"), "--replicas"), (("--batch", "0"), "--batch"),
                             (("--batch", "4", "--json", "/proc/nowhere/x.json"), "/proc/nowhere/x.json")):
            done = run(*flags)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(words, done.stderr + done.stdout)
            self.assertNotIn("terminate", done.stderr)


if __name__ == "__main__":
    unittest.main()
