"""Jobs on several nodes: each agent is a process of this machine."""

import os
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ports import free_port  # noqa: E402
from launch_test import DEADLINE_S, LaunchTest, main  # noqa: E402

QUICK = "keep_alive_interval=0.1,keep_alive_max_attempt=3,join_timeout=60,last_call_timeout=60"


def lines(text, pattern):
    return re.findall(pattern, text, re.MULTILINE)


class NodesTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def node(self, rank, *arguments, nodes=2, **variables):
        return self.start("--nnodes", nodes, "--node-rank", rank, "--master-port", self.port, *arguments, **variables)

    def elastic(self, *arguments, nodes="1:3", conf=QUICK, host=False, **variables):
        return self.start("--nnodes", nodes, "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{self.port}",
                          "--rdzv-id=e", "--rdzv-conf", f"{conf},is_host={int(host)}", *arguments, **variables)

    def all_end(self, jobs, status):
        for job in jobs:
            self.assertEqual(job.wait(), status, job.out + job.err)


class StaticNodes(NodesTest):
    def test_ranks_follow_the_numbers_of_the_nodes(self):
        logs = [self.path(f"env{i}") for i in range(3)]
        jobs = [self.node(i, "--nproc-per-node", i + 1, "--role", role, "-r1", "--log-dir", logs[i], self.worker, "env",
                          nodes=3) for i, role in ((2, "a"), (0, "a"), (1, "b"))]
        self.all_end(jobs, 0)
        seen = {}
        for folder, _, files in os.walk(self.folder):
            for name in files:
                if name == "stdout.log":
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        got = dict(line.rstrip("\n").split("=", 1) for line in file)
                    seen[int(got["RANK"])] = [got[k] for k in (
                        "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
                        "ROLE_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")]
        tail = ["6", "127.0.0.1", str(self.port)]
        self.assertEqual(seen, {0: ["0", "1", "0", "3", "a", "0", "4", *tail],
                                1: ["0", "2", "1", "3", "b", "0", "2", *tail],
                                2: ["1", "2", "1", "3", "b", "1", "2", *tail],
                                3: ["0", "3", "2", "3", "a", "1", "4", *tail],
                                4: ["1", "3", "2", "3", "a", "2", "4", *tail],
                                5: ["2", "3", "2", "3", "a", "3", "4", *tail]})

    def test_workers_meet_across_nodes(self):
        for address in ("127.0.0.1", "[::1]", "localhost"):
            with self.subTest(address):
                self.port = free_port()
                jobs = [self.node(i, "--master-addr", address, "--nproc-per-node=2", self.worker, "meet")
                        for i in (1, 0)]
                self.all_end(jobs, 0)
                self.assertEqual(sorted((jobs[0].out + jobs[1].out).splitlines()),
                                 [f"rank {r} of 4 met" for r in range(4)])

    def test_process_groups_form_on_one_node_on_two_and_after_a_restart(self):
        self.assertEqual(self.run_well("--nproc-per-node=3", self.worker, "reduce"), "sum 3\n" * 3)
        jobs = [self.node(i, "--nproc-per-node=2", "--max-restarts=1", self.worker, "reduce", "+0", "@3", "exit", 1,
                          "+0", "hang") for i in (0, 1)]
        self.all_end(jobs, 0)
        for job in jobs:
            self.assertEqual(job.out.splitlines()[-2:], ["sum 6", "sum 6"])

    def test_workers_meet_through_the_store_of_rank_0(self):
        jobs = [self.node(i, self.worker, "meet", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") for i in (0, 1)]
        self.all_end(jobs, 0)

    def test_agents_and_workers_share_a_secret(self):
        jobs = [self.node(i, self.worker, "meet", ATHANOR_JOB_SECRET="open sesame") for i in (0, 1)]
        self.all_end(jobs, 0)
        self.port = free_port()
        host = self.node(0, self.worker, "meet", ATHANOR_JOB_SECRET="open sesame")
        other = self.node(1, self.worker, "meet", ATHANOR_JOB_SECRET="wrong")
        self.assertEqual(other.wait(), 1)
        self.assertIn("ATHANOR_JOB_SECRET", other.err)
        self.assertIsNone(host.process.poll())

    def test_all_nodes_name_the_first_rank_to_fail(self):
        jobs = [self.node(i, "--nproc-per-node=2", self.worker, "meet", "@3", "err", "why", "@3", "exit", 6, "hang")
                for i in (0, 1)]
        self.all_end(jobs, 6)
        for job in jobs:
            self.assertIn("rank 3 failed first: exit code 6", job.err)
            self.assertIn("    | why", job.err)

    def test_all_nodes_tell_what_the_ranks_were_doing(self):
        jobs = [self.node(i, "--nproc-per-node=2", "--max-restarts=1", self.worker, "group", "@2", "exit", 7, "hang")
                for i in (0, 1)]
        self.all_end(jobs, 7)
        for job in jobs:
            self.assertEqual(len(re.findall(
                r"rank 2 failed first: exit code 7\n[^|]*?\n  what the ranks were doing:\n    rank 0: completed up to "
                r"number .*\n    rank 1: completed .*\n    rank 2: it is gone\n    rank 3: completed", job.err)), 2,
                job.err)

    def test_all_nodes_start_again_after_a_failure(self):
        jobs = [self.node(i, "--max-restarts=2", self.worker, "meet", "+0", "@1", "exit", 3, "+1", "@0", "raise", 9,
                          "+0", "hang", "+1", "hang", "env") for i in (0, 1)]
        self.all_end(jobs, 0)
        for job in jobs:
            self.assertIn("TORCHELASTIC_RESTART_COUNT=2", job.out)
            self.assertIn("rank 1 failed first: exit code 3", job.err)
            self.assertIn("rank 0 failed first: signal 9", job.err)

    def test_a_node_that_is_done_takes_part_in_a_restart(self):
        jobs = [self.node(i, "--max-restarts=1", self.worker, "meet", "+0", "@1", "await", self.path("done"), "+0",
                          "@1", "exit", 3, "@0", "touch", self.path("done"), "env") for i in (0, 1)]
        self.all_end(jobs, 0)
        self.assertEqual(len(lines(jobs[0].out, "^TORCHELASTIC_RESTART_COUNT=")), 2)

    def test_missing_nodes_are_named(self):
        jobs = [self.node(i, "--rdzv-conf=join_timeout=1", "true", nodes=4) for i in (0, 2)]
        self.all_end(jobs, 1)
        for job in jobs:
            self.assertRegex(job.err, r"2 of 4 nodes came.*missing: node 1, 3 within 1 s")

    def test_without_node_0_the_address_is_named(self):
        job = self.node(1, "--rdzv-conf=join_timeout=1", "true")
        self.assertEqual(job.wait(), 1)
        self.assertIn(f"127.0.0.1:{self.port}", job.err)

    def test_a_number_given_twice_is_an_error_of_the_second(self):
        host = self.node(0, self.worker, "meet", nodes=3)
        jobs = [self.node(1, self.worker, "meet", nodes=3) for _ in range(2)]
        for _ in self.patience():
            if any(job.process.poll() is not None for job in jobs):
                break
        refused = [job for job in jobs if job.process.poll() is not None]
        self.assertEqual(len(refused), 1)
        self.assertEqual(refused[0].wait(), 1)
        self.assertIn("--node-rank=1 is taken", refused[0].err)
        self.assertIsNone(host.process.poll())
        self.assertEqual(self.node(2, self.worker, "meet", nodes=3).wait(), 0)
        self.assertEqual(host.wait(), 0)

    def test_nodes_of_different_jobs_do_not_mix(self):
        host = self.node(0, "true", nodes=2)
        for flags, says in ((("--rdzv-id=other",), "'other'"), (("--nnodes=3",), "--nnodes")):
            job = self.node(1, *flags, "true")
            self.assertEqual(job.wait(), 1)
            self.assertIn(says, job.err)
        self.assertIsNone(host.process.poll())

    def test_a_lost_node_ends_the_job(self):
        jobs = [self.node(i, "--rdzv-conf", QUICK, self.worker, "out", "up", "hang") for i in (0, 1)]
        for job in jobs:
            job.await_lines("up")
        jobs[1].process.kill()
        self.assertEqual(jobs[0].wait(), 1)
        self.assertRegex(jobs[0].err, r"node 1 \(.*\) gave no sign of life for")

    def test_the_loss_of_the_stores_node_ends_the_job(self):
        jobs = [self.node(i, "--rdzv-conf", QUICK, self.worker, "child", "hang") for i in (0, 1)]
        pids = [int(p) for job in jobs for p in job.await_lines(r"left (\d+)")]
        jobs[0].process.kill()
        self.assertEqual(jobs[1].wait(), 1)
        self.assertIn(f"127.0.0.1:{self.port}", jobs[1].err)
        for pid in pids:
            self.await_gone(pid)

    def test_a_signal_to_one_node_ends_all(self):
        for stopped in (0, 1):
            self.port = free_port()
            jobs = [self.node(i, self.worker, "polite", "out", "up", "hang") for i in (0, 1)]
            for job in jobs:
                job.await_lines("up")
            jobs[stopped].process.terminate()
            self.assertEqual(jobs[stopped].wait(), 143)
            self.assertEqual(jobs[1 - stopped].wait(), 1)
            self.assertRegex(jobs[1 - stopped].err, rf"node {stopped} \(.*\) was stopped by SIGTERM")
            for job in jobs:
                self.assertIn("saved", job.out)

    def test_a_signal_while_others_are_awaited_ends_at_once(self):
        for rank in (0, 1):
            job = self.node(rank, "true")
            job.await_guard()
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(20), 130)

    def test_a_successor_takes_the_place_of_a_lost_node(self):
        flags = ("--rdzv-conf", QUICK, "--max-restarts=1", self.worker, "+0", "out", "up", "+0", "hang", "meet")
        jobs = [self.node(i, *flags) for i in (0, 1)]
        for job in jobs:
            job.await_lines("up")
        jobs[1].process.kill()
        self.all_end([jobs[0], self.node(1, *flags)], 0)


class ElasticNodes(NodesTest):
    def worker_until(self, *arguments):
        """Prints its world, and ends well when the file `go` is there."""
        script = self.write("elastic.sh", "echo world $WORLD_SIZE rank $RANK group $GROUP_RANK attempt "
                            "$TORCHELASTIC_RESTART_COUNT\nwhile [ ! -e go ]; do sleep 0.01; done\n", 0o755)
        return (*arguments, "sh", script)

    def go(self):
        open(self.path("go"), "w").close()

    def test_it_starts_at_once_when_all_places_are_taken(self):
        jobs = [self.elastic("--nproc-per-node=2", self.worker, "meet", nodes="1:2", host=i == 0) for i in (0, 1)]
        self.all_end(jobs, 0)
        self.assertEqual(len(lines(jobs[0].out + jobs[1].out, "of 4 met")), 4)

    def test_it_starts_with_fewer_after_the_last_call(self):
        conf = "last_call_timeout=0.3,keep_alive_interval=0.1"
        jobs = [self.elastic(self.worker, "env", nodes="2:4", host=i == 0, conf=conf) for i in (0, 1)]
        self.all_end(jobs, 0)
        self.assertEqual({tuple(lines(j.out, r"^WORLD_SIZE=(\d)")) for j in jobs}, {("2",)})

    def test_too_few_nodes_are_an_error(self):
        job = self.elastic("true", nodes="2:3", host=True, conf="join_timeout=0.5")
        self.assertEqual(job.wait(), 1)
        self.assertIn("1 of 2 nodes came", job.err)

    def test_a_newcomer_makes_all_start_again(self):
        conf = "last_call_timeout=0.05,keep_alive_interval=0.1,join_timeout=60"
        first = self.elastic(*self.worker_until(), host=True, conf=conf)
        first.await_lines("world 1 rank 0 group 0 attempt 0")
        second = self.elastic(*self.worker_until(), conf=conf)
        first.await_lines("world 2 rank 0 group 0 attempt 0")
        second.await_lines("world 2 rank 1 group 1 attempt 0")
        self.go()
        self.all_end([first, second], 0)
        self.assertIn("came; all workers start again", first.err)

    def test_survivors_go_on_without_a_killed_agent(self):
        jobs = [self.elastic(*self.worker_until(), host=i == 0) for i in range(3)]
        for job in jobs:
            job.await_lines("world 3")
        jobs[2].process.kill()
        for job in jobs[:2]:
            job.await_lines("world 2 .* attempt 0")
        jobs[1].process.terminate()
        self.assertEqual(jobs[1].wait(), 143)
        jobs[0].await_lines("world 1 rank 0 group 0 attempt 0")
        self.go()
        self.assertEqual(jobs[0].wait(), 0)
        self.assertRegex(jobs[0].err, "gave no sign of life")
        self.assertRegex(jobs[0].err, "was stopped by SIGTERM")

    def test_survivors_whose_workers_fail_for_lack_of_a_killed_node_go_on_without_a_restart_left(self):
        jobs = [self.elastic(self.worker, "group", "out", "in {p}", "await", self.path("go"), "call", "out", "done",
                             host=i == 0) for i in range(3)]
        pids = [int(job.await_lines(r"in (\d+)")[0]) for job in jobs]
        jobs[2].process.kill()
        self.await_gone(pids[2])  # or it would still be in the call that is to fail
        self.go()
        self.all_end(jobs[:2], 0)
        for job in jobs[:2]:
            self.assertEqual(job.out.count("done"), 1)
            self.assertIn("gave no sign of life", job.err)

    def test_a_failure_counts_as_a_restart_and_a_killed_worker_too(self):
        jobs = [self.elastic("--max-restarts=2", self.worker, "meet", "+0", "@1", "raise", 9, "+1", "@2", "exit", 1,
                             "+0", "hang", "+1", "hang", "env", host=i == 0) for i in range(3)]
        self.all_end(jobs, 0)
        for job in jobs:
            self.assertIn("TORCHELASTIC_RESTART_COUNT=2", job.out)

    def test_who_is_too_many_waits_for_a_place(self):
        jobs = [self.elastic(*self.worker_until(), nodes="2:2", host=i == 0, ATHANOR_LOG="info") for i in range(2)]
        for job in jobs:
            job.await_lines("world 2")
        spare = self.elastic(*self.worker_until(), "--max-restarts=1", nodes="2:2")
        jobs[0].await_lines("waits for a place", which=1)
        self.go()
        self.all_end([*jobs, spare], 0)
        self.assertNotIn("world", spare.out)
        os.remove(self.path("go"))
        self.port = free_port()
        jobs = [self.elastic("--max-restarts=1", *self.worker_until(), nodes="2:2", host=i == 0) for i in range(2)]
        for job in jobs:
            job.await_lines("world 2")
        spare = self.elastic("--max-restarts=1", *self.worker_until(), nodes="2:2")
        jobs[1].process.kill()
        spare.await_lines("world 2 rank 1 group 1 attempt 1")
        self.go()
        self.all_end([jobs[0], spare], 0)

    def test_the_agent_on_the_endpoints_machine_serves_the_store(self):
        flags = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", self.worker, "meet")
        self.all_end([self.start(*flags) for _ in range(2)], 0)


class Schedulers(LaunchTest):
    """Without flags, what the scheduler says is enough."""

    def world_of(self, *environments, flags=()):
        jobs = [self.start(*flags, self.worker, "env", "meet", **e) for e in environments]
        found = []
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.out + job.err)
            got = dict(line.split("=", 1) for line in job.out.splitlines() if "=" in line)
            found.append(tuple(int(got[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")))
        return found

    def test_slurm_with_one_agent_per_node(self):
        job = free_port() - 20000
        common = {"SLURM_JOB_ID": str(job), "SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_STEP_NUM_TASKS": "2",
                  "SLURM_STEP_NODELIST": "localhost,other", "SLURM_TASKS_PER_NODE": "1(x2)"}
        self.assertEqual(self.world_of(*({**common, "SLURM_NODEID": str(i), "SLURM_PROCID": str(i), "SLURM_LOCALID": "0"}
                                         for i in (0, 1))), [(0, 2, 0, 1), (1, 2, 0, 1)])

    def test_slurm_with_an_agent_per_task(self):
        job = free_port() - 20000
        common = {"SLURM_JOB_ID": str(job), "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "4",
                  "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
        self.assertEqual(self.world_of(*({**common, "SLURM_NODEID": str(i // 2), "SLURM_PROCID": str(i),
                                          "SLURM_LOCALID": str(i % 2)} for i in range(4))),
                         [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)])

    def test_slurm_with_unequal_numbers_of_tasks(self):
        job = free_port() - 20000
        common = {"SLURM_JOB_ID": str(job), "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "3",
                  "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2,1"}
        places = [(0, 0), (0, 1), (1, 0)]
        self.assertEqual(self.world_of(*({**common, "SLURM_NODEID": str(node), "SLURM_PROCID": str(i),
                                          "SLURM_LOCALID": str(local)} for i, (node, local) in enumerate(places))),
                         [(0, 3, 0, 2), (1, 3, 1, 2), (2, 3, 0, 1)])

    def test_a_slurm_batch_script_runs_one_node_and_says_so(self):
        status, out, err = self.run_agent(self.worker, "meet", SLURM_JOB_ID="7", SLURM_NNODES="2", SLURM_NODEID="0",
                                          SLURM_PROCID="0", SLURM_JOB_NODELIST="a[1-2]")
        self.assertEqual((status, out), (0, "rank 0 of 1 met\n"))
        self.assertIn("srun", err)

    def test_open_mpi(self):
        common = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
                  "PMIX_NAMESPACE": f"prte-{self.folder}@1"}
        self.assertEqual(self.world_of(*({**common, "OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_LOCAL_RANK": str(i)}
                                         for i in range(3))), [(0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3)])

    def test_mpich(self):
        common = {"PMI_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        found = self.world_of(*({**common, "PMI_RANK": str(i), "MPI_LOCALRANKID": str(i)} for i in (0, 1)))
        self.assertEqual([f[:3] for f in found], [(0, 2, 0), (1, 2, 1)])

    def test_kubeflow_pytorchjob(self):
        # WORLD_SIZE counts processes there, RANK counts pods.
        port = str(free_port())
        common = {"PYTHONUNBUFFERED": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": port, "PET_MASTER_ADDR": "localhost",
                  "PET_MASTER_PORT": port, "WORLD_SIZE": "4", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2"}
        found = self.world_of(*({**common, "RANK": str(i), "PET_NODE_RANK": str(i)} for i in (0, 1)))
        self.assertEqual([f[1] for f in found], [4, 4])

    def test_kubeflow_elastic_pytorchjob(self):
        common = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": f"localhost:{free_port()}", "PET_NNODES": "2:3",
                  "PET_RDZV_ID": "job", "PET_RDZV_CONF": "last_call_timeout=0.2,keep_alive_interval=0.2",
                  "PET_MAX_RESTARTS": "3", "PET_NPROC_PER_NODE": "1"}
        self.assertEqual(sorted(f[:2] for f in self.world_of(common, common)), [(0, 2), (1, 2)])
        # `standalone: true`: endpoint, backend and name are ignored, says its schema.
        for value, worlds in (("0", [(0, 2), (1, 2)]), ("1", [(0, 1)] * 2), ("", [(0, 1)] * 2)):
            pod = {**common, "PET_STANDALONE": value}
            self.assertEqual(sorted(f[:2] for f in self.world_of(pod, pod)), worlds, f"PET_STANDALONE='{value}'")
        pod = {**common, "PET_STANDALONE": "", "PET_NNODES": "1"}
        self.assertEqual(self.world_of(pod, flags=("--standalone=0",)), [(0, 1, 0, 1)])

    def test_kubeflow_trainjob(self):
        common = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "localhost",
                  "PET_MASTER_PORT": str(free_port())}
        self.assertEqual([f[:2] for f in self.world_of(*({**common, "PET_NODE_RANK": str(i)} for i in (0, 1)))],
                         [(0, 2), (1, 2)])

    def test_operators_that_know_no_launcher(self):
        common = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        self.assertEqual([f[:2] for f in self.world_of(*({**common, "RANK": str(i)} for i in (0, 1)))],
                         [(0, 2), (1, 2)])

    def test_an_indexed_job_of_kubernetes(self):
        port = str(free_port())
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        for common, flags in ((variables, ()), ({}, ("--nnodes=2", f"--master-port={port}")),
                              ({"PET_NNODES": "2", "PET_MASTER_PORT": port}, ())):
            found = self.world_of(*({**common, "JOB_COMPLETION_INDEX": str(i)} for i in (0, 1)), flags=flags)
            self.assertEqual([f[:2] for f in found], [(0, 2), (1, 2)])
        # A job whose pods work alone.
        self.assertEqual(self.world_of({"JOB_COMPLETION_INDEX": "3"})[0][:2], (0, 1))

    def test_flags_win_over_the_scheduler(self):
        slurm = {"SLURM_JOB_ID": "5", "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_STEP_NUM_TASKS": "2",
                 "SLURM_STEP_NODELIST": "nowhere[1-2]"}
        for flags in (("--standalone",), ("--nnodes=1",)):
            self.assertEqual(self.world_of(slurm, flags=flags), [(0, 1, 0, 1)])


class Hosts(LaunchTest):
    """--hosts, with a stand-in for ssh that runs what it is told on this machine."""

    def setUp(self):
        super().setUp()
        self.ssh = self.write("ssh", "#!/bin/sh\n[ $1 != nowhere ] || { echo unreachable >&2; exit 255; }\n"
                              f"echo $$ $1 >> {self.path('started')}\nshift\nsh -c \"$*\"\nexit $?\n", 0o755)

    def environment(self, **variables):
        return super().environment(ATHANOR_SSH=self.ssh, **variables)

    def test_workers_of_all_hosts_meet(self):
        out = self.run_well("--hosts", "127.0.0.1:2,me@localhost:1", self.worker, "meet")
        self.assertEqual(sorted(out.splitlines()), [f"rank {r} of 3 met" for r in range(3)])
        with open(self.path("started"), encoding="utf-8") as file:
            self.assertEqual(sorted(line.split()[1] for line in file), ["127.0.0.1", "me@localhost"])

    def test_hosts_stand_in_a_file(self):
        path = self.write("hosts", "# two\n127.0.0.1 slots=2\n\nlocalhost:1 # and one\nlocalhost\n")
        out = self.run_well("--hostfile", path, "--nproc-per-node=2", self.worker, "meet")
        self.assertEqual(out.count("of 5 met"), 5)

    def test_flags_settings_folder_and_arguments_arrive_whole(self):
        os.mkdir(self.path("a b"))
        script = self.write("a b/it's.sh", "echo $OMP_NUM_THREADS $ROLE_NAME\nfor a in \"$@\"; do echo \"<$a>\"; done\n")
        out = self.run_well("--hosts=127.0.0.1", "--role", "it is", "sh", script, "x y", "$HOME", "'", "--hosts", "q",
                            OMP_NUM_THREADS="3")
        self.assertEqual(out, "3 it is\n<x y>\n<$HOME>\n<'>\n<--hosts>\n<q>\n")

    def test_the_secret_is_shared_but_on_no_command_line(self):
        secret = "open sesame 4711"
        out = self.run_well("--hosts=127.0.0.1,localhost", "sh", "-c", f"{self.worker} meet && cat /proc/*/cmdline | "
                            "tr '\\0' ' '", ATHANOR_JOB_SECRET=secret)
        self.assertEqual(len(lines(out, "of 2 met")), 2)
        self.assertNotIn(secret, out)

    def test_the_status_of_the_first_failure_is_returned(self):
        status, _, err = self.run_agent("--hosts=127.0.0.1,localhost", self.worker, "meet", "@1", "exit", 5, "hang")
        self.assertEqual(status, 5)
        self.assertIn("rank 1 failed first", err)

    def test_a_host_that_cannot_be_reached_ends_the_job(self):
        status, _, err = self.run_agent("--hosts=127.0.0.1,nowhere", self.worker, "meet")
        self.assertEqual(status, 255)
        self.assertIn("no agent on nowhere", err)

    def test_signals_reach_the_workers_on_all_hosts(self):
        job = self.start("--hosts=127.0.0.1,localhost", self.worker, "polite", "out", "up", "hang")
        job.await_lines("up", 2)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(job.out.count("saved"), 2)

    def test_nothing_is_left_when_it_is_killed(self):
        job = self.start("--hosts=127.0.0.1,localhost", self.worker, "ignore", "child", "daemon", "hang",
                         PET_SHUTDOWN_TIMEOUT="1")
        pids = [int(pid) for pid in job.await_lines(r"left (\d+)", 4)]
        job.process.kill()
        job.wait()
        for pid in pids:
            self.await_gone(pid)

    def test_mistakes_are_named(self):
        hosts = "--hostfile=" + self.write("hosts", "a\nb slots=x\n")
        for flags, says in (((hosts,), hosts.split("=")[1] + "', line 2"), (("--hosts=a\x1bb",), "host or host"),
                            (("--hosts=a;b",), "a;b"), (("--hosts=a:0",), "'0'"), (("--hosts=-oX",), "-oX"),
                            (("--hosts=a", "--nnodes=2"), "--nnodes"), (("--hostfile=/no/such",), "/no/such"),
                            (("--hosts=a", "--hostfile=b"), "exclude")):
            status, _, err = self.run_agent(*flags, "true")
            self.assertEqual(status, 2, err)
            self.assertIn(says, err)


class Networks(NodesTest):
    """Two hosts that share nothing but a cable: network namespaces."""

    def setUp(self):
        super().setUp()
        names = [f"athanor{os.getpid()}{c}" for c in "ab"]
        cable = [f"ath{os.getpid() % 100000}{c}" for c in "ab"]
        commands = [["ip", "netns", "add", name] for name in names]
        commands.append(["ip", "link", "add", cable[0], "netns", names[0], "type", "veth", "peer", "name", cable[1],
                         "netns", names[1]])
        for i in (0, 1):
            inside = ["ip", "-n", names[i]]
            commands += [[*inside, "addr", "add", f"10.77.0.{i + 1}/24", "dev", cable[i]],
                         [*inside, "link", "set", cable[i], "up"], [*inside, "link", "set", "lo", "up"]]
        for name in names:
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=False, capture_output=True)
        for command in commands:
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            except FileNotFoundError:
                self.skipTest("there is no program ip")
            if done.returncode != 0:
                self.skipTest(f"no network namespaces: {done.stderr.strip()}")
        self.names, self.cable = names, cable

    def inside(self, i, *arguments):
        program, self.program = self.program, "ip"
        try:
            return self.start("netns", "exec", self.names[i], program, "run", *arguments, subcommand="-4")
        finally:
            self.program = program

    def test_workers_meet_across_hosts(self):
        for flags in (("--nnodes=2", "--master-addr=10.77.0.1"),
                      ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1")):
            jobs = [self.inside(i, *flags, "--node-rank", i, "--nproc-per-node=2", self.worker, "meet") for i in (1, 0)]
            self.all_end(jobs, 0)
            self.assertEqual(len(lines(jobs[0].out + jobs[1].out, "of 4 met")), 4)

    def test_a_host_behind_a_cut_cable_is_lost(self):
        jobs = [self.inside(i, "--nnodes=2", "--master-addr=10.77.0.1", "--node-rank", i, "--rdzv-conf", QUICK,
                            self.worker, "out", "up", "hang") for i in (0, 1)]
        for job in jobs:
            job.await_lines("up")
        subprocess.run(["ip", "-n", self.names[1], "link", "set", self.cable[1], "down"], check=True)
        self.all_end(jobs, 1)
        self.assertIn("gave no sign of life", jobs[0].err)
        self.assertIn("10.77.0.1", jobs[1].err)


if __name__ == "__main__":
    main()
