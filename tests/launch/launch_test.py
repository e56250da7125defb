"""What tests of the launcher share: running it with a deadline, in an environment without traces of other launchers."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# Nothing here may take longer, even under a sanitizer on a busy machine.
DEADLINE_S = 120
LAUNCH_VARIABLES = re.compile(r"^(PET_|SLURM_|OMPI_|PMI|TORCH|MASTER_|RANK$|WORLD_SIZE$|LOCAL_|GROUP_|ROLE_|OMP_NUM|"
                              r"MPI_|CUDA_VISIBLE|ATHANOR_JOB|JOB_COMPLETION)")


class Job:
    """An agent that runs beside the test. Its output goes to files, so that nothing waits for a reader."""

    def __init__(self, test, command, environment):
        self.test = test
        self.outputs = [tempfile.TemporaryFile() for _ in range(2)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.outputs[0],
                                        stderr=self.outputs[1], env=environment, cwd=test.folder)
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for output in self.outputs:
            output.close()

    def text(self, which):
        size = os.fstat(self.outputs[which].fileno()).st_size
        return os.pread(self.outputs[which].fileno(), size, 0).decode()

    @property
    def out(self):
        return self.text(0)

    @property
    def err(self):
        return self.text(1)

    def wait(self, seconds=DEADLINE_S):
        """The exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.test.fail(f"the agent did not end in {seconds} s\n{self.out}{self.err}")

    def await_lines(self, pattern, count=1, which=0):
        """Until so many lines match; the matches."""
        found = []
        for _ in self.test.patience():
            found = re.findall(pattern, self.text(which), re.MULTILINE)
            if len(found) >= count:
                return found
            if self.process.poll() is not None:
                found = re.findall(pattern, self.text(which), re.MULTILINE)
                if len(found) >= count:
                    return found
                break
        self.test.fail(f"{len(found)} of {count} lines '{pattern}'\n{self.out}{self.err}")
        return []

    def await_guard(self):
        """Until the agent takes its signals itself: its guardian is forked after that."""
        pid = self.process.pid
        for _ in self.test.patience():
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
                if file.read():
                    return


class LaunchTest(unittest.TestCase):
    program = os.environ.get("ATHANOR_PROGRAM", "")
    worker = os.environ.get("LAUNCH_WORKER", "")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def environment(self, **variables):
        keep = {k: v for k, v in os.environ.items() if not LAUNCH_VARIABLES.match(k)}
        return {**keep, **variables}

    def start(self, *arguments, subcommand="run", **variables):
        return Job(self, [self.program, subcommand, *map(str, arguments)], self.environment(**variables))

    def run_agent(self, *arguments, subcommand="run", **variables):
        """Until it ends: (status, stdout, stderr)."""
        job = self.start(*arguments, subcommand=subcommand, **variables)
        status = job.wait()
        return status, job.out, job.err

    def run_well(self, *arguments, **variables):
        status, out, err = self.run_agent(*arguments, **variables)
        self.assertEqual(status, 0, out + err)
        return out

    def variables_of(self, *arguments, **variables):
        """The environment of each rank, by rank."""
        self.run_well("-r", "1", "--log-dir", self.path("env"), *arguments, self.worker, "env", **variables)
        found = {}
        for folder, _, files in os.walk(self.path("env")):
            for name in files:
                if name == "stdout.log":
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        entry = dict(line.rstrip("\n").split("=", 1) for line in file)
                    found[int(entry["RANK"])] = entry
        return found

    def patience(self):
        """Loops until the deadline, with short pauses."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            yield
            time.sleep(0.005)

    def await_gone(self, pid):
        for _ in self.patience():
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except (FileNotFoundError, ProcessLookupError):
                return
        os.kill(pid, signal.SIGKILL)
        self.fail(f"process {pid} is still there")


def main() -> None:
    """Runs the class named on the command line; exits with 77 and the reason if all of its tests skipped."""
    for name in ("ATHANOR_PROGRAM", "LAUNCH_WORKER"):
        if not os.access(os.environ.get(name, ""), os.X_OK):
            sys.exit(f"${name} should name a program, got '{os.environ.get(name, '')}'")
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:], sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    if result.wasSuccessful() and result.skipped and len(result.skipped) == result.testsRun:
        print("SKIP: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
