"""The scripts for Slurm, mpirun and pdsh. srun and pdsh are stand-ins that start on this machine what the real ones would
start on several, with the variables that they set; mpirun is the real one."""

import os
import re
import shutil
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ports import free_port  # noqa: E402
from deploy_test import BUILD, DEADLINE_S, DEPLOY, DeployTest, main  # noqa: E402

# Starts SLURM_NTASKS_PER_NODE tasks for each of SLURM_JOB_NUM_NODES nodes, as srun does in a batch script.
SRUN = r"""#!{python}
import os, signal, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
nodes, per_node = int(os.environ["SLURM_JOB_NUM_NODES"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": str(nodes), "SLURM_STEP_NUM_TASKS": str(nodes * per_node),
        "SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"], "SLURM_STEP_TASKS_PER_NODE": f"{per_node}(x{nodes})"}
tasks = [subprocess.Popen(words, env={**os.environ, **step, "SLURM_PROCID": str(i), "SLURM_NODEID": str(i // per_node),
                                      "SLURM_LOCALID": str(i % per_node)}) for i in range(nodes * per_node)]
signal.signal(signal.SIGTERM, lambda *_: [task.send_signal(signal.SIGTERM) for task in tasks])
codes = [task.wait() for task in tasks]
sys.exit(max(128 - code if code < 0 else code for code in codes))
"""
# pdsh -S -w a,b LINE: the line in a shell of each host.
PDSH = r"""#!{python}
import subprocess, sys
words = sys.argv[1:]
hosts = words[words.index("-w") + 1].split(",")
assert "-S" in words, "the status of the program would be lost"
shells = [subprocess.Popen(["/bin/sh", "-c", words[-1]], stdin=subprocess.DEVNULL) for _ in hosts]
sys.exit(max(shell.wait() for shell in shells))
"""
SCHEDULERS = re.compile(r"^(SLURM|OMPI|PMI|PET_|MASTER_|RANK$|WORLD_SIZE$|LOCAL_|ATHANOR_|PDSH)")


class SchedulersTest(DeployTest):
    def setUp(self):
        super().setUp()
        self.data = self.digits(512, 64)

    def stand_in(self, name: str, text: str) -> None:
        os.makedirs(self.path("bin"), exist_ok=True)
        with open(self.path(f"bin/{name}"), "w", encoding="utf-8") as file:
            file.write(text.replace("{python}", sys.executable))
        os.chmod(self.path(f"bin/{name}"), 0o755)

    def environment(self, **variables: str) -> dict:
        keep = {k: v for k, v in os.environ.items() if not SCHEDULERS.match(k)}
        path = ":".join([self.path("bin"), os.path.join(BUILD, "bin"), os.environ["PATH"]])
        return {**keep, "PATH": path, "ATHANOR_DATA": self.data, "ATHANOR_OFFLINE": "1", **variables}

    def run_script(self, script: str, *words: str, **variables: str):
        return self.run_command(os.path.join(DEPLOY, script), *words, env=self.environment(**variables),
                                cwd=self.folder)

    def assert_trained(self, done, ranks: int) -> None:
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("Test set:"), 1, done.stdout)
        logs = sorted(name for name in os.listdir(self.folder) if name.startswith("log"))
        self.assertEqual(logs, sorted(["log"] + [f"log.rank{r}" for r in range(1, ranks)]))


MNIST = ("mnist", "--net", "tutorial", "--epochs", "1", "--threads", "1", "--no-progress", "--log-path", "log")


class Slurm(SchedulersTest):
    def job(self, nodes: int, per_node: int) -> dict:
        self.stand_in("srun", SRUN)
        return {"SLURM_JOB_ID": str(free_port() - 20000), "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_NNODES": str(nodes),
                "SLURM_JOB_NODELIST": "localhost,node[2-9]", "SLURM_NTASKS_PER_NODE": str(per_node), "SLURM_NODEID": "0",
                "SLURM_NTASKS": str(nodes * per_node), "SLURM_PROCID": "0", "SLURM_CPUS_PER_TASK": "1"}

    def test_an_agent_per_node_starts_the_workers(self):
        self.assert_trained(self.run_script("slurm/train.sbatch", *MNIST, WORKERS="2", **self.job(2, 1)), 4)

    def test_tasks_are_ranks(self):
        self.assert_trained(self.run_script("slurm/ranks.sbatch", *MNIST, **self.job(2, 2)), 4)

    def test_the_signal_before_the_time_limit_saves(self):
        for script in ("slurm/train.sbatch", "slurm/ranks.sbatch"):
            command = [os.path.join(DEPLOY, script), *MNIST[:4], "400", *MNIST[5:], "--log-interval", "1", "--checkpoint", "ckpt"]
            with subprocess.Popen(command, env=self.environment(**self.job(2, 1)), cwd=self.folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                lines, told = [], False
                for line in process.stdout:
                    lines.append(line)
                    if line.startswith("Train Epoch: 2 ") and not told:  # a second signal would end it at once
                        process.send_signal(signal.SIGTERM)
                        told = True
                self.assertEqual(process.wait(DEADLINE_S), 143, "".join(lines))
            self.assertIn("Interrupted; continue with --resume ckpt", "".join(lines))
            os.remove(self.path("ckpt"))

    def test_a_program_in_the_batch_script_itself_trains_alone(self):
        done = self.run_command(*MNIST, env=self.environment(**self.job(2, 2)), cwd=self.folder)
        self.assert_trained(done, 1)


class Mpirun(SchedulersTest):
    """As root Open MPI wants to be told twice that this is meant."""

    def setUp(self):
        super().setUp()
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun here")
        self.root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
        self.options = {**self.root, "MPIRUN": "mpirun --oversubscribe"}

    def test_slots_are_ranks(self):
        done = self.run_script("mpirun.sh", "localhost:3", *MNIST, MASTER_PORT=str(free_port()), **self.options)
        self.assert_trained(done, 3)

    def test_slots_are_agents(self):
        done = self.run_script("mpirun.sh", "localhost:2", "athanor", "run", "--nproc-per-node", "2", *MNIST,
                               MASTER_PORT=str(free_port()), **self.options)
        self.assert_trained(done, 4)

    def test_on_one_host_no_script_is_needed(self):
        done = self.run_command("mpirun", "--oversubscribe", "-n", "2", *MNIST, env=self.environment(**self.root),
                                cwd=self.folder)
        self.assert_trained(done, 2)

    def test_usage_is_told(self):
        for words in ((), ("localhost:2",)):
            done = self.run_script("mpirun.sh", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("HOST:SLOTS", done.stderr)


class Pdsh(SchedulersTest):
    def setUp(self):
        super().setUp()
        self.stand_in("pdsh", PDSH)

    def test_agents_of_all_hosts_meet(self):
        done = self.run_script("pdsh.sh", "127.0.0.1,localhost", *MNIST, WORKERS="2", MASTER_PORT=str(free_port()))
        self.assert_trained(done, 4)

    def test_words_arrive_as_they_are(self):
        done = self.run_script("pdsh.sh", "localhost", "sh", "-c", 'for w in "$@"; do echo "<$w>"; done', "sh", "a b", "$HOME",
                               "'", MASTER_PORT=str(free_port()))
        self.assertEqual(done.stdout, "<a b>\n<$HOME>\n<'>\n", done.stderr)

    def test_the_programs_status_comes_back(self):
        done = self.run_script("pdsh.sh", "localhost,127.0.0.1", "sh", "-c", "exit 7", MASTER_PORT=str(free_port()))
        self.assertEqual(done.returncode, 7, done.stderr)

    def test_mistakes_are_named(self):
        for words, says in (((), "usage"), (("a,b",), "usage"), (("node[1-2]", "true"), "one by one")):
            done = self.run_script("pdsh.sh", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr)


if __name__ == "__main__":
    main()
