"""`athanor env`, the report a bug report starts with, and that `athanor bench` measures."""

import json
import os
import re
import shutil
import subprocess
import unittest

ATHANOR = os.path.join(os.environ["ATHANOR_BIN"], "athanor")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([ATHANOR, "env", *arguments], env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=120)


class Env(unittest.TestCase):
    def test_json_names_what_is_built_in_and_found(self):
        done = run("--json", ATHANOR_NUM_THREADS="1", ATHANOR_JOB_SECRET="hush")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["threads"], "1")
        self.assertEqual(report["backends"]["tcp"], "usable")
        self.assertIn("gloo", report["backends"])
        self.assertTrue(any("libathanor" in path for path in report["libraries"]), report["libraries"])
        self.assertEqual(report["variables"]["ATHANOR_NUM_THREADS"], "1")
        self.assertNotIn("hush", done.stdout, "secrets are not for bug reports")

    def test_text_has_the_same_entries(self):
        done = run()
        self.assertEqual(done.returncode, 0, done.stderr)
        for key in ("athanor ", "processor ", "backends", "variables"):
            self.assertTrue(any(line.startswith(key) for line in done.stdout.splitlines()), (key, done.stdout))

    def test_backends_are_tried_out(self):
        done = run("--backends", ATHANOR_NUM_THREADS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()
                if line.startswith("|")]
        table = {(row[0], row[1]): dict(zip(rows[0], row)) for row in rows[2:]}
        # What the conformance suite says of more ranks, sizes and layouts, by the same names.
        with open(os.path.join(ROOT, "docs", "backends.md")) as file:
            documented = re.findall(r"^\| ([a-z_, ]+) \| `(cpu|cpu:k)` \| (\w+)", file.read(), re.MULTILINE)
        self.assertGreater(len(documented), 20)
        for operation, device, works in documented:
            self.assertEqual(table[operation, device]["tcp"], works, (operation, device))
        self.assertNotIn("uint8", table["operator AVG", "any"]["tcp"])
        self.assertIn("float32", table["operator AVG", "any"]["tcp"])
        self.assertNotIn("fails", done.stdout)

    def test_whether_mpi_takes_device_memory_is_told(self):
        if not os.path.exists(os.path.join(os.path.dirname(os.environ["ATHANOR_BIN"]), "lib", "libathanor_mpi.so")):
            self.skipTest("the plug-in mpi was not built")
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun here")
        started_by_mpi = subprocess.run(
            ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-np", "1", ATHANOR, "env", "--backends"],
            env={**os.environ, "ATHANOR_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240)
        self.assertEqual(started_by_mpi.returncode, 0, started_by_mpi.stderr)
        self.assertRegex(started_by_mpi.stdout, r"(?m)^mpi: .*CUDA-aware: (device tensors are staged|it takes device memory)")

    def test_wrong_flags_are_refused(self):
        self.assertEqual(run("--yaml").returncode, 2)
        self.assertIn("Usage", run("--help").stdout)


class Bench(unittest.TestCase):
    def test_collectives_are_measured_between_processes(self):
        done = subprocess.run([ATHANOR, "bench", "collectives", "--ops", "all_reduce", "--sizes", "8", "--ranks", "2",
                               "--rounds", "1"], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(line.split() for line in done.stdout.splitlines() if line.startswith("all_reduce"))
        self.assertEqual((line[1], line[-1]), ("8", "0"), done.stdout)


if __name__ == "__main__":
    unittest.main()
