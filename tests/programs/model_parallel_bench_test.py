"""examples/model_parallel_bench.cpp: its figures and charts, on a small network."""

import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = os.path.join(os.environ["ATHANOR_BIN"], "model_parallel_bench")
SMALL = ("--batch", "4", "--size", "32", "--classes", "10", "--batches", "1", "--repeats", "2")


def run(*flags: str, layers: str = "1,1,1,1", cuda: str = "0") -> subprocess.CompletedProcess:
    environment = {**os.environ, "ATHANOR_CUDA_ON_CPU": cuda}
    if cuda == "0":
        del environment["ATHANOR_CUDA_ON_CPU"]
    return subprocess.run((PROGRAM, *SMALL, "--layers", layers, *flags), capture_output=True, text=True, timeout=200,
                          check=False, env=environment)


class ModelParallelBench(unittest.TestCase):
    def test_compares_three_ways_and_draws_them(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("--split", "2", "--splits", "2,4,60", "--pipeline-class", "--out", os.path.join(folder, "new"))
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "new", "model_parallel_bench.json"), encoding="utf-8") as file:
                figures = json.load(file)
            self.assertEqual([row["label"] for row in figures["comparison"]],
                             ["Model Parallel", "Single GPU", "Pipelining Model Parallel", "Pipeline (1F1B, balanced)"])
            self.assertEqual([row["label"] for row in figures["sweep"]], ["2", "4"])  # 60 is beyond the batch
            for row in figures["comparison"] + figures["sweep"]:
                self.assertGreater(row["mean_s"], 0)
            for name, texts in (("mp_and_rn", ["Model Parallel", "Single GPU"]),
                                ("mp_and_rn_and_pp", ["Pipelining Model Parallel"]),
                                ("split_size_tradeoff", ["Pipeline Split Size", "4"])):
                root = xml.etree.ElementTree.parse(os.path.join(folder, "new", name + ".svg")).getroot()
                written = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
                for text in texts + ["ResNet50 Execution Time (Second)"]:
                    self.assertIn(text, written)

    def test_writes_what_each_device_did_when(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            done = run("--split", "2", "--splits", "0", "--out", folder, "--trace", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
        kernels = [e for e in events if e.get("cat") == "kernel"]
        self.assertEqual({names[e["tid"]] for e in kernels}, {"queue of cpu:0", "queue of cpu:1"})
        for device in ("cpu:0", "cpu:1"):
            self.assertIn(f"{device} computed for", done.stdout)

    def test_takes_devices_learning_rate_and_seed(self):
        with tempfile.TemporaryDirectory() as folder:
            for devices, cuda in (("cpu:2,cpu:1", "0"), ("cuda:1,cuda:0", "2")):
                path = os.path.join(folder, "trace.json")
                done = run("--split", "2", "--splits", "0", "--out", folder, "--trace", path, "--devices", devices,
                           "--lr", "0.01", "--seed", "7", cuda=cuda)
                self.assertEqual(done.returncode, 0, done.stderr)
                for device in devices.split(","):
                    self.assertIn(f"\n{device} computed for", done.stdout)

    def test_refuses_flags_that_cannot_work(self):
        for flags, words in ((("--split", "8"), "beyond the batch"), (("--split", "0"), "--split"),
                             (("--split", "2", "--out", "/proc/nowhere"), "/proc/nowhere"),
                             (("--split", "2", "--devices", "cpu:0"), "--devices"), (("--split", "2", "--lr", "-1"), "--lr"),
                             (("--split", "2", "--devices", "cpu:0,cpu:0"), "--devices: device cpu:0 is listed twice"),
                             (("--split", "2", "--devices", "cuda:0,cuda:1"), "ATHANOR_CUDA_ON_CPU"),
                             (("--split", "2", "--devices", "tpu:0,tpu:1"), "tpu")):
            done = run(*flags)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr + done.stdout)
            self.assertNotIn("terminate", done.stderr)
        done = run("--split", "2", layers="1,0,1,1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("every stage needs a block", done.stderr)


if __name__ == "__main__":
    unittest.main()
