"""PyTorch's programs under `athanor run`, Athanor's programs under torchrun. Needs a Python with PyTorch 2 in
ATHANOR_PEER_PYTHON."""

import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ports import free_port  # noqa: E402
from launch_test import DEADLINE_S, Job, LaunchTest, main  # noqa: E402

ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "--fail" in sys.argv:
    sys.exit(3 if dist.get_rank() == 1 else 0)
x = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(x)
sys.stdout.write(f"sum {x.tolist()} of {dist.get_world_size()}\\n")  # at once, also without a buffer
dist.destroy_process_group()
"""


def peer_python():
    return os.environ.get("ATHANOR_PEER_PYTHON", "").split(":")[0]


class PeersTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.python = peer_python()
        if not self.python:
            self.skipTest("ATHANOR_PEER_PYTHON names no Python with PyTorch")
        check = "import torch.distributed; assert int(torch.__version__.split('.')[0]) >= 2"
        if subprocess.run([self.python, "-c", check], capture_output=True, check=False, timeout=DEADLINE_S).returncode:
            self.skipTest(f"{self.python} has no PyTorch 2 with torch.distributed")

    def environment(self, **variables):
        # Gloo otherwise asks a name server for this machine's name.
        return super().environment(PYTHON_EXEC=self.python, GLOO_SOCKET_IFNAME="lo", **variables)


class PyTorchsWorkers(PeersTest):
    def test_they_meet_through_our_agents_store(self):
        script = self.write("all_reduce.py", ALL_REDUCE)
        out = self.run_well("--nproc-per-node=2", script)
        self.assertEqual(out.splitlines(), ["sum [3.0, 3.0, 3.0] of 2"] * 2)

    def test_they_meet_across_nodes_and_after_a_restart(self):
        script = self.write("all_reduce.py", ALL_REDUCE)
        port = free_port()
        for backend in (("--master-port", port), ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}")):
            jobs = [self.start("--nnodes=2", "--node-rank", i, *backend, "--max-restarts=1", script, "--fail")
                    for i in (0, 1)]
            for job in jobs:
                self.assertEqual(job.wait(), 0, job.err)
                self.assertEqual(job.out, "sum [3.0, 3.0, 3.0] of 2\n")
                self.assertIn("exit code 3", job.err)

    def test_what_their_record_decorator_says_is_in_our_report(self):
        script = self.write("recorded.py", "from torch.distributed.elastic.multiprocessing.errors import record\n"
                            "@record\ndef main():\n    raise ValueError('odd number of layers')\nmain()\n")
        status, _, err = self.run_agent(script)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"it reported:\n    Traceback[^|]*ValueError: odd number of layers")


    def test_timers_that_their_client_sets_end_them(self):
        script = self.write("timer.py", "import os, signal, torch.distributed.elastic.timer as timer\n"
                            "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
                            "with timer.expires(after=600):\n    print('in time', flush=True)\n"
                            "with timer.expires(after=0.1, scope='step'):\n    signal.pause()\n")
        status, out, err = self.run_agent(script, TORCHELASTIC_ENABLE_FILE_TIMER="1")
        self.assertEqual((status, out), (137, "in time\n"), err)
        self.assertIn("timer 'step' ran out", err)

    def test_every_flag_of_torchrun_is_known(self):
        theirs = subprocess.run([self.python, "-m", "torch.distributed.run", "--help"], capture_output=True, check=True,
                                text=True, timeout=DEADLINE_S).stdout
        ours = self.run_well("--help")
        for flag in set(re.findall(r"--[a-z][a-z_-]+", theirs[theirs.index("options:"):])) - {"--redirect"}:
            self.assertRegex(ours, rf"{flag}\b")


class UnderTorchrun(PeersTest):
    def torchrun(self, *arguments, **variables):
        command = [self.python, "-m", "torch.distributed.run", *map(str, arguments)]
        return Job(self, command, self.environment(**variables))

    def test_our_workers_meet(self):
        for flags in (("--standalone",), ("--master-port", free_port())):
            job = self.torchrun(*flags, "--nproc-per-node=3", "--no-python", self.worker, "meet")
            self.assertEqual(job.wait(), 0, job.out + job.err)
            self.assertEqual(sorted(job.out.splitlines()), [f"rank {r} of 3 met" for r in range(3)])

    def test_our_workers_meet_when_torchrun_keeps_its_store_to_itself(self):
        job = self.torchrun("--standalone", "--nproc-per-node=2", "--no-python", self.worker, "meet",
                            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self.assertEqual(job.wait(), 0, job.out + job.err)
        self.assertEqual(job.out.count("of 2 met"), 2)

    def test_variables_are_the_same_as_under_athanor_run(self):
        flags = ("--standalone", "--rdzv-id=foo", "--nproc-per-node=2", "--max-restarts=3", "--role=r", "--no-python", self.worker, "env")
        texts = []
        for job in (self.torchrun(*flags), self.start(*flags)):
            self.assertEqual(job.wait(), 0, job.err)
            texts.append(re.sub(r"(?<=RUN_ID=)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "<UUID>", job.out,
                                flags=re.MULTILINE))
            self.assertEqual(texts[-1].count("TORCHELASTIC_RUN_ID=<UUID>\n"), 2, job.out)
        # Ports, file names and the name of the machine differ.
        own = re.compile(r"^(MASTER_ADDR|MASTER_PORT|TORCHELASTIC_ERROR_FILE)=.*\n", re.MULTILINE)
        theirs, ours = (sorted(own.sub(r"\1\n", text).splitlines()) for text in texts)
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    main()
