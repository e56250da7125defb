"""Programs for GPUs on a machine without one: ATHANOR_CUDA_ON_CPU (cuda/documents.cpp)."""

import os
import subprocess
import unittest

BIN = os.environ["ATHANOR_BIN"]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    keep = {k: v for k, v in os.environ.items()
            if k not in ("ATHANOR_CUDA_ON_CPU", "ATHANOR_CPU_DEVICES", "CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE")}
    return subprocess.run(arguments, env={**keep, **variables}, capture_output=True, text=True, timeout=200, check=False)


class CudaOnCpu(unittest.TestCase):
    def documents(self, *arguments: str, status: int = 0, **variables: str) -> subprocess.CompletedProcess:
        done = run(os.path.join(BIN, "cuda_documents"), *arguments, **variables)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_off_there_are_no_devices_and_nothing_is_said(self):
        done = self.documents("devices")
        self.assertEqual(done.stdout, "No GPU available.\n 1  1  1\n 1  1  1\n[ CPUFloatType{2,3} ]\n")
        self.assertEqual(done.stderr, "")
        self.assertIn("no CUDA support. Set ATHANOR_CUDA_ON_CPU=1", self.documents("visible").stdout)

    def test_devices_are_counted_named_printed_and_announced_in_one_line(self):
        done = self.documents("devices", ATHANOR_CUDA_ON_CPU="2")
        self.assertEqual(done.stdout, "Number of GPUs available: 2\n"
                                      "GPU 0: Athanor virtual device\nGPU 1: Athanor virtual device\n"
                                      " 1  1  1\n 1  1  1\n[ CUDAFloatType{2,3} ]\n"
                                      "current 1, new cuda:1, then cuda:0, by number cuda:1\n")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("ATHANOR_CUDA_ON_CPU=2", done.stderr)

    def test_a_model_on_two_devices_trains_and_mixing_them_names_both(self):
        out = self.documents("model_parallel", ATHANOR_CUDA_ON_CPU="2").stdout.splitlines()
        self.assertEqual(out[0], "cuda:1 cuda:0")
        self.assertIn("cuda:0", out[1])
        self.assertIn("cuda:1", out[1])

    def test_data_parallel_uses_all_devices(self):
        for count in ("1", "2", "4"):
            device, difference = self.documents("data_parallel", ATHANOR_CUDA_ON_CPU=count).stdout.split()
            self.assertEqual(device, "cuda:0")
            self.assertLess(float(difference), 1e-5)

    def test_ddp_over_nccl_reduces(self):
        for count in ("2", "4"):
            out = self.documents("ddp", count, ATHANOR_CUDA_ON_CPU=count).stdout
            self.assertEqual(out, f"nccl cuda:0 {sum(range(int(count)))}\n")

    def test_visible_devices_are_those_of_the_first_use(self):
        for listed, count in (("0,1", 2), ("1", 1), ("", 0), ("-1", 0), ("2,0", 2), ("0,9,1", 1)):
            done = self.documents("visible", ATHANOR_CUDA_ON_CPU="3", CUDA_VISIBLE_DEVICES=listed)
            out = done.stdout.splitlines()
            self.assertEqual(out[:2], [str(count)] * 2, listed)
            self.assertIn(f"cuda:{count} does not exist", out[2])
            self.assertIn(f"CUDA_VISIBLE_DEVICES='{listed}' leave {count} device", out[2])
            if count:
                self.assertIn("CUDA_VISIBLE_DEVICES is now '0'", done.stderr)

    def test_a_number_of_devices_that_makes_no_sense_is_refused(self):
        for value in ("many", "-1", "1000"):
            done = run(os.path.join(BIN, "cuda_documents"), "devices", ATHANOR_CUDA_ON_CPU=value)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("ATHANOR_CUDA_ON_CPU", done.stderr)

    def test_the_launcher_counts_them(self):
        done = run(os.path.join(BIN, "athanor"), "run", "--standalone", "--nproc-per-node=gpu", "--no-python",
                   "/bin/sh", "-c", "echo rank $LOCAL_RANK", ATHANOR_CUDA_ON_CPU="3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("rank "), 3, done.stdout)


if __name__ == "__main__":
    unittest.main()
