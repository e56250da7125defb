"""Where workers run and what they are told of it: CPUs, devices, the old launcher's argument."""

import os
import re
import sys
import time
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launch_test import LaunchTest, main  # noqa: E402

# Of what a busy machine may be too slow for.
ATTEMPTS = 5
SHOW = "import sys\nprint(*sys.argv[1:])\n"
# The flag is put together at run time: only --help tells it.
HELPFUL = """
import sys
if "--help" in sys.argv:
    print("usage: x [--local" + chr(95) + "rank N]", file=sys.stderr)
    sys.exit(2)
print(*sys.argv[1:])
"""
DEAF = """
import os, sys, time
if "--help" in sys.argv:
    print("busy", flush=True)
    if os.fork() == 0:
        open("child", "w").write(str(os.getpid()))
        os.rename("child", "pid")
    time.sleep(600)
print(*sys.argv[1:])
"""


class Cpus(LaunchTest):
    def allowed(self, *flags):
        """Rank -> the CPUs of its worker."""
        out = self.run_well("-t", "1", "--log-line-prefix-template", "${rank} ", *flags, "grep", "Cpus_allowed_list",
                            "/proc/self/status")
        found = {}
        for rank, text in re.findall(r"^(\d+) Cpus_allowed_list:\s*(\S+)$", out, re.MULTILINE):
            ends = [part.split("-") for part in text.split(",")]
            found[int(rank)] = {cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)}
        return found

    def setUp(self):
        super().setUp()
        if not os.path.isdir("/sys/devices/system/node/node0"):
            self.skipTest("this system does not show its NUMA nodes")
        self.mine = os.sched_getaffinity(0)

    def cores_of_nodes(self):
        """Node -> its cores, each the CPUs of it, as far as this process may use them."""
        found = {}
        for cpu in self.mine:
            folder = f"/sys/devices/system/cpu/cpu{cpu}"
            nodes = [name for name in os.listdir(folder) if re.fullmatch(r"node\d+", name)]
            with open(folder + "/topology/thread_siblings_list", encoding="utf-8") as file:
                found.setdefault(nodes[0] if nodes else "", set()).add(file.read().strip())
        return found

    def test_without_the_flag_workers_have_the_agents_cpus(self):
        self.assertEqual(self.allowed("--nproc-per-node=2"), {0: self.mine, 1: self.mine})

    def test_node_and_socket_bind_to_cpus_of_the_machine(self):
        for kind in ("node", "socket"):
            for cpus in self.allowed("--nproc-per-node=2", f"--numa-binding={kind}").values():
                self.assertTrue(cpus and cpus <= self.mine, kind)

    def test_exclusive_gives_each_worker_cpus_of_its_own(self):
        if min(len(cores) for cores in self.cores_of_nodes().values()) < 2:
            self.skipTest("a NUMA node with one core only")
        first, second = (self.allowed("--nproc-per-node=2", "--numa-binding", "exclusive")[r] for r in (0, 1))
        self.assertTrue(first and second)
        self.assertFalse(first & second)
        status, _, err = self.run_agent("--nproc-per-node=2", "--numa-binding=exclusive", "--explain", "true")
        self.assertEqual(status, 0, err)
        self.assertRegex(err, r"rank 1: local rank 1, device \S+, CPUs [\d,-]+\n")

    def test_more_workers_than_cores_are_refused_by_exclusive(self):
        status, _, err = self.run_agent("--nproc-per-node=4096", "--numa-binding=exclusive", "true")
        self.assertEqual(status, 2)
        self.assertRegex(err, r"--numa-binding=exclusive: \d+ workers on a NUMA node with \d+ cores?")


class Devices(LaunchTest):
    def test_more_workers_than_devices_are_warned_of_and_the_missing_one_names_rank_and_count(self):
        status, out, err = self.run_agent("--nproc-per-node=2", self.worker, "@0", "device", "@0", "touch",
                                          self.path("up"), "@1", "await", self.path("up"), "@1", "device", "@0", "hang",
                                          ATHANOR_CUDA_ON_CPU="1")
        self.assertNotEqual(status, 0)
        self.assertIn("--nproc-per-node 2 is more than the 1 GPU of this node", err)
        self.assertEqual(err.count("several workers will share one"), 1)
        self.assertIn("rank 0 uses cuda:0", out)
        self.assertRegex(err, r"device cuda:1 does not exist: [^\n]*1 device;[^\n]*rank 1, worker 1 of the 2 of this node")

    def test_as_many_workers_as_devices_are_not_warned_of(self):
        status, out, err = self.run_agent("--nproc-per-node=2", self.worker, "device", ATHANOR_CUDA_ON_CPU="2")
        self.assertEqual(status, 0, err)
        self.assertNotIn("share", err)
        self.assertIn("rank 1 uses cuda:1", out)


class LocalRank(LaunchTest):
    def packed(self, name, text):
        """A program that is no text: an archive with Python in front."""
        with open(self.path(name), "wb") as file:
            file.write(b"#!" + sys.executable.encode() + b"\n")
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("__main__.py", text)
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def launched(self, *arguments, **variables):
        status, out, err = self.run_agent(*arguments, subcommand="launch", **variables)
        self.assertEqual(status, 0, err)
        self.assertEqual(len(err.splitlines()), 1, "nothing but that the launcher is deprecated: " + err)
        return out

    def assert_answers(self, expected, *arguments, **variables):
        """Who is asked has two seconds, in which Python may not have started on a busy machine: it is asked again."""
        for _ in range(ATTEMPTS):
            out = self.launched(*arguments, **variables)
            if out == expected:
                return
        self.assertEqual(out, expected)

    def test_a_binary_is_asked_by_help(self):
        self.assert_answers("--local_rank=0 a\n", self.packed("p", HELPFUL), "a")
        self.assertEqual(self.launched(self.packed("q", SHOW)), "--local-rank=0\n")

    def test_a_program_that_does_not_know_help_is_ended_with_its_group(self):
        for _ in range(ATTEMPTS):
            began = time.monotonic()
            self.assertEqual(self.launched(self.packed("p", DEAF)), "--local-rank=0\n")
            self.assertGreaterEqual(time.monotonic() - began, 2)
            if os.path.exists(self.path("pid")):
                break
        with open(self.path("pid"), encoding="utf-8") as file:
            self.await_gone(int(file.read()))

    def test_a_program_that_never_stops_writing_does_not_hold_the_launcher(self):
        text = "import os, sys\nwhile '--help' in sys.argv: os.write(1, b'x' * 65536)\n" + SHOW
        self.assertEqual(self.launched(self.packed("p", text)), "--local-rank=0\n")

    def test_a_script_is_read_and_not_asked(self):
        script = self.write("s.py", SHOW + "open('ran', 'a').write('x')\n")
        self.assertEqual(self.launched(script), "--local-rank=0\n")
        with open(self.path("ran"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "x")

    def test_the_source_of_a_module_is_found_where_python_finds_it(self):
        os.makedirs(self.path("lib/pkg"))
        self.write("lib/pkg/__init__.py", "print('athanor found:here')\n")
        self.write("lib/pkg/mod.py", SHOW + "# --local_rank\n")
        self.write("lib/pkg/__main__.py", SHOW + "# --local-rank --local" + "_rank\n")
        for module, flag in (("pkg.mod", "--local_rank"), ("pkg", "--local-rank")):
            self.assertEqual(self.launched("-m", module, PYTHONPATH=self.path("lib")),
                             f"athanor found:here\n{flag}=0\n")

    def test_a_module_without_source_is_asked_by_help(self):
        os.makedirs(self.path("lib"))
        with zipfile.ZipFile(self.path("lib/all.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside.py", HELPFUL)
        self.assert_answers("--local_rank=0\n", "-m", "inside", PYTHONPATH=self.path("lib/all.zip"))


if __name__ == "__main__":
    main()
