"""A group in narrow surroundings: a network of loopback alone, next to no /dev/shm, no shared memory; and what its ranks
say of their way into it."""

import functools
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ports import free_port  # noqa: E402
from launch_test import DEADLINE_S, Job, LaunchTest, main  # noqa: E402

# Of 2 ranks: both elements of the sum are 2 * (1 + 1), the broadcast value being 1.
JOINED = "joined 2: 8\n"


@functools.lru_cache(maxsize=None)
def namespaces(kind, setup):
    """What stands before a command to run it in a new namespace after `setup` was done there; a text why not."""
    reason = ""
    for flags in ([], ["--map-root-user"]):
        inside = ["unshare", *flags, kind, "sh", "-c", f'{setup} && exec "$@"', "sh"]
        try:
            done = subprocess.run([*inside, "true"], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        except FileNotFoundError as error:
            return str(error)
        if done.returncode == 0:
            return tuple(inside)
        reason = done.stderr.strip()
    return reason


class Surroundings(LaunchTest):
    def inside(self, kind, setup):
        found = namespaces(kind, setup)
        if isinstance(found, str):
            self.skipTest(f"no namespace of {kind} here: {found}")
        return list(found)

    def run_inside(self, before, *arguments, **variables):
        job = Job(self, [*before, self.program, "run", *map(str, arguments)], self.environment(**variables))
        return job.wait(), job.out, job.err


class LoopbackAlone(Surroundings):
    def test_a_group_meets_by_tcp_and_computes(self):
        before = self.inside("--net", "ip link set lo up")
        for host in ("127.0.0.1", "localhost"):
            status, out, err = self.run_inside(before, "--nproc-per-node=2", self.worker, "join",
                                               f"tcp://{host}:{free_port()}")
            self.assertEqual((status, out), (0, JOINED * 2), err)

    def test_so_does_one_over_sockets_and_one_by_the_launchers_store(self):
        before = self.inside("--net", "ip link set lo up")
        status, out, err = self.run_inside(before, "--nproc-per-node=2", self.worker, "join",
                                           f"tcp://127.0.0.1:{free_port()}", ATHANOR_TRANSPORT="tcp")
        self.assertEqual((status, out), (0, JOINED * 2), err)
        status, out, err = self.run_inside(before, "--nproc-per-node=2", self.worker, "reduce")
        self.assertEqual((status, out), (0, "sum 1\n" * 2), err)


class LittleSharedMemory(Surroundings):
    def test_a_group_needs_no_room_in_dev_shm(self):
        before = self.inside("--mount", "mount -t tmpfs -o size=64k tmpfs /dev/shm")
        sizes = subprocess.run([*before, "stat", "-f", "-c", "%b %S", "/dev/shm"], capture_output=True, text=True,
                               check=True, timeout=DEADLINE_S).stdout.split()
        self.assertEqual(int(sizes[0]) * int(sizes[1]), 65536)
        for transport in ("auto", "shm"):
            status, out, err = self.run_inside(before, "--nproc-per-node=2", self.worker, "join",
                                               f"tcp://127.0.0.1:{free_port()}", ATHANOR_TRANSPORT=transport)
            self.assertEqual((status, out), (0, JOINED * 2), err)
            self.assertNotIn("cannot share memory", err)


class Transport(LaunchTest):
    # Nothing larger than a block may be made, files in memory included.
    NARROW = 'trap "" XFSZ; ulimit -f 1; exec "$0" "$@"'

    def test_auto_falls_back_to_sockets_where_memory_cannot_be_shared(self):
        status, out, err = self.run_agent("--nproc-per-node=2", "sh", "-c", self.NARROW, self.worker, "join",
                                          f"tcp://127.0.0.1:{free_port()}")
        self.assertEqual((status, out), (0, JOINED * 2), err)
        self.assertIn("they use TCP instead", err)

    def test_shm_is_an_error_where_memory_cannot_be_shared(self):
        status, _, err = self.run_agent("--nproc-per-node=2", "sh", "-c", self.NARROW, self.worker, "join",
                                        f"tcp://127.0.0.1:{free_port()}", ATHANOR_TRANSPORT="shm")
        self.assertNotEqual(status, 0)
        self.assertRegex(err, r"ATHANOR_TRANSPORT=shm, but rank 0 [^\n]*cannot share memory: cannot create \d+ bytes")

    def test_shm_shares_memory_where_it_can_and_other_names_are_refused(self):
        status, out, err = self.run_agent("--nproc-per-node=2", self.worker, "join", f"tcp://127.0.0.1:{free_port()}",
                                          ATHANOR_TRANSPORT="shm")
        self.assertEqual((status, out), (0, JOINED * 2), err)
        status, _, err = self.run_agent("--nproc-per-node=2", self.worker, "join", f"tcp://127.0.0.1:{free_port()}",
                                        ATHANOR_TRANSPORT="pigeon")
        self.assertNotEqual(status, 0)
        self.assertIn("ATHANOR_TRANSPORT='pigeon': expected auto, shm or tcp", err)


class DebugLog(LaunchTest):
    def lines(self, *arguments):
        """Rank -> what it said, in order."""
        status, _, err = self.run_agent("--nproc-per-node=2", self.worker, *arguments, ATHANOR_LOG="debug")
        self.assertEqual(status, 0, err)
        said = {0: "", 1: ""}
        for rank, text in re.findall(r"^\[athanor\]\[rank (\d)\]\[debug\] (.*\n)", err, re.MULTILINE):
            said[int(rank)] += text
        return said

    def test_every_rank_tells_each_step_of_its_way_into_the_group(self):
        url = f"tcp://127.0.0.1:{free_port()}"
        for rank, text in self.lines("join", url).items():
            store = r"TCPStore serves port \d+\n(.*\n)*?" if rank == 0 else r"connected to 127\.0\.0\.1:\d+ .*\n(.*\n)*?"
            mesh = "" if rank == 0 else r"group 'default_pg': connected to rank 0.*\n(.*\n)*?"
            self.assertRegex(text, rf"(?m)^rendezvous at {re.escape(url)}, rank {rank} of 2\n(.*\n)*?{store}"
                             rf"rendezvous done: rank {rank} of 2, .*\n(.*\n)*?"
                             rf"group 'default_pg': rank {rank} of 2 connects by backend 'tcp'\n(.*\n)*?{mesh}"
                             rf"group 'default_pg': rank {rank} of 2 is ready after \d+ ms\n")

    def test_so_does_a_worker_that_meets_at_the_launchers_store(self):
        for rank, text in self.lines("reduce").items():
            self.assertRegex(text, rf"(?m)^rendezvous at env://.*\n(.*\n)*?env://: looking for the store at .*\n(.*\n)*?"
                             rf"rendezvous done: rank {rank} of 2(.*\n)*?group 'default_pg': rank {rank} of 2 is ready")

    def test_without_it_nothing_is_said(self):
        status, _, err = self.run_agent("--nproc-per-node=2", self.worker, "reduce", ATHANOR_LOG="")
        self.assertEqual((status, err), (0, ""))


if __name__ == "__main__":
    main()
