"""Jobs on one node."""

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ports import free_port  # noqa: E402
from launch_test import DEADLINE_S, LaunchTest, main  # noqa: E402


# Sets and releases a timer; rank 1 sets another one in its first attempt, and waits.
TIMERS = """
import json, os, signal, sys, time
def tell(scope, expires, signal):
    with os.fdopen(os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY | os.O_NONBLOCK), "wt") as pipe:
        pipe.write(json.dumps({"version": 1, "pid": os.getpid(), "scope_id": scope, "expiration_time": expires,
                               "signal": signal}) + "\\n")
tell("released", time.time() + 600, int(signal.SIGKILL))
tell("silent", time.time() + 0.01, 0)
tell("released", -1, 0)
print("released", flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "0":
        open(sys.argv[1], "w").close()
    else:
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        tell("step", time.time() + 0.1, int(signal.SIGKILL))
        tell("later", time.time() + 600, int(signal.SIGTERM))
    signal.pause()
"""


class Variables(LaunchTest):
    def test_every_worker_gets_torchruns_variables(self):
        found = self.variables_of("--nproc-per-node", 3, "--role", "trainer", "--rdzv-id", "job7", "--max-restarts", 2)
        self.assertEqual(sorted(found), [0, 1, 2])
        for rank, got in found.items():
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3",
                        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_NAME": "trainer",
                        "ROLE_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
                        "TORCHELASTIC_MAX_RESTARTS": "2", "TORCHELASTIC_RUN_ID": "job7",
                        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
                        "OMP_NUM_THREADS": "1"}
            self.assertEqual({k: got[k] for k in expected}, expected)
            self.assertTrue(got["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))
        self.assertEqual(len({got["MASTER_PORT"] for got in found.values()}), 1)
        self.assertGreater(int(found[0]["MASTER_PORT"]), 0)

    def test_threads_of_workers_are_left_alone_when_chosen_or_alone(self):
        self.assertEqual(self.variables_of("--nproc-per-node", 2, OMP_NUM_THREADS="3")[1]["OMP_NUM_THREADS"], "3")
        shutil.rmtree(self.path("env"))
        self.assertEqual(self.variables_of()[0]["OMP_NUM_THREADS"], "")

    def test_address_and_port_of_the_flags_reach_the_workers(self):
        for given, seen in (("[::1]", "::1"), ("localhost", "localhost")):
            with self.subTest(given):
                port = str(free_port())
                got = self.variables_of("--master-addr", given, "--master-port", port)[0]
                self.assertEqual((got["MASTER_ADDR"], got["MASTER_PORT"]), (seen, port))
                shutil.rmtree(self.path("env"))

    def test_one_gpu_is_shown_to_each_worker_by_virtual_local_rank(self):
        found = self.variables_of("--nproc-per-node", 2, "--virtual-local-rank", CUDA_VISIBLE_DEVICES="4,7")
        self.assertEqual([(g["LOCAL_RANK"], g["CUDA_VISIBLE_DEVICES"]) for _, g in sorted(found.items())],
                         [("0", "4"), ("0", "7")])

    def test_workers_meet_through_the_agents_store(self):
        out = self.run_well("--nproc-per-node", 4, self.worker, "meet")
        self.assertEqual(sorted(out.splitlines()), [f"rank {r} of 4 met" for r in range(4)])

    def test_workers_meet_through_the_store_of_rank_0(self):
        out = self.run_well("--nproc-per-node", 3, self.worker, "env", "meet", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self.assertEqual(out.count("of 3 met"), 3)
        self.assertEqual(out.count("TORCHELASTIC_USE_AGENT_STORE=False"), 3)

    def test_workers_with_the_jobs_secret_meet(self):
        out = self.run_well("--nproc-per-node", 2, self.worker, "meet", ATHANOR_JOB_SECRET="it is a secret")
        self.assertEqual(out.count("of 2 met"), 2)

    def test_two_jobs_with_default_flags_run_at_once(self):
        jobs = [self.start("--nproc-per-node", 2, *flag, self.worker, "touch", self.path(f"{i}-{{r}}"),
                           *[w for j in (0, 1) for r in (0, 1) for w in ("await", self.path(f"{j}-{r}"))], "meet")
                for i, flag in enumerate(([], ["--standalone"]))]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.err)
            self.assertEqual(job.out.count("of 2 met"), 2)

    def test_scripts_of_python_do_not_buffer(self):
        script = self.write("hi.py", "import os, sys\nprint('rank', os.environ['RANK'], *sys.argv[1:])\n"
                            "os.kill(os.getpid(), 9)\n")
        status, out, _ = self.run_agent(script, "--lr", "1")
        self.assertEqual((status, out), (137, "rank 0 --lr 1\n"))


class Flags(LaunchTest):
    def count(self, *arguments, **variables):
        return len(self.run_well(*arguments, self.worker, "out", "here", **variables).splitlines())

    def test_dashes_underscores_and_equals_signs_are_all_taken(self):
        for flag in (("--nproc-per-node", "2"), ("--nproc_per_node", "2"), ("--nproc_per_node=2",)):
            self.assertEqual(self.count(*flag), 2)

    def test_variables_give_defaults_and_flags_win(self):
        self.assertEqual(self.count(PET_NPROC_PER_NODE="3"), 3)
        self.assertEqual(self.count("--nproc-per-node=2", PET_NPROC_PER_NODE="3"), 2)
        self.assertEqual(self.count(PET_NPROC_PER_NODE=""), 1)

    def test_flags_in_variables_take_0_1_and_nothing(self):
        for value in ("0", "1", ""):
            self.assertEqual(self.count(PET_STANDALONE=value, PET_NPROC_PER_NODE="2"), 2)
        status, _, err = self.run_agent("true", PET_NO_PYTHON="1", PET_MODULE="1")
        self.assertEqual(status, 2)
        self.assertIn("exclude each other", err)

    def test_a_standalone_job_has_a_name_of_its_own_whatever_is_set(self):
        uuid4 = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
        port = str(free_port())
        names = set()
        for flags in ((), ("--rdzv-id=foo",), ("--rdzv-id=a/b",), ("--rdzv-backend=static", "--node-rank=5"),
                      ("--nnodes=2:3", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=foo")):
            found = self.variables_of("--standalone", *flags)
            self.assertEqual((list(found), found[0]["WORLD_SIZE"], found[0]["TORCHELASTIC_USE_AGENT_STORE"]),
                             ([0], "1", "True"))
            self.assertNotEqual(found[0]["MASTER_PORT"], port)
            self.assertRegex(found[0]["TORCHELASTIC_RUN_ID"], uuid4)
            names.add(found[0]["TORCHELASTIC_RUN_ID"])
            shutil.rmtree(self.path("env"))
        self.assertEqual(len(names), 5)
        self.assertEqual(self.variables_of()[0]["TORCHELASTIC_RUN_ID"], "none")

    def test_workers_by_the_number_of_cpus(self):
        cpus = len(os.sched_getaffinity(0))
        for value in ("cpu", "auto"):
            self.assertLessEqual(1, self.count("--nproc-per-node", value, CUDA_VISIBLE_DEVICES=""))
            self.assertLessEqual(self.count("--nproc-per-node", value, CUDA_VISIBLE_DEVICES=""), cpus)
        status, _, err = self.run_agent("--nproc-per-node=gpu", "true", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(status, 2)
        self.assertIn("no GPU", err)

    def test_everything_behind_the_program_is_the_programs(self):
        for lead in ((), ("--",)):
            out = self.run_well(*lead, self.worker, "args", "--nproc-per-node", "7", "-m", "--", "--x=y z", "")
            self.assertEqual(out, "[--nproc-per-node][7][-m][--][--x=y z][]\n")

    def test_flags_without_effect_are_taken(self):
        self.run_well("--start-method=fork", "--monitor_interval", "5", "--run_path", "--event-log-handler=null",
                      "--logs-specs", "default", "--local-addr", "127.0.0.1", "--no-python", self.worker, "out", "x")

    def test_variables_of_torchruns_agent_without_effect_are_said_to_have_none(self):
        for name in ("TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"):
            status, out, err = self.run_agent(self.worker, "out", "x", **{name: str(free_port())})
            self.assertEqual((status, out, err.count(name)), (0, "x\n", 1), err)

    def test_settings_of_the_meeting_without_effect_are_said_to_have_none(self):
        conf = "close_timeout=30,rank=0,join_timeout=60,heartbeat_timeout=5,cas_backoff_max_seconds=0.5"
        status, out, err = self.run_agent("--rdzv-conf", conf, self.worker, "out", "x")
        self.assertEqual((status, out), (0, "x\n"), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("close_timeout, rank, heartbeat_timeout, cas_backoff_max_seconds", err)
        self.assertEqual(self.run_agent("--rdzv-conf=join_timeout=60", self.worker, "out", "x"), (0, "x\n", ""))

    def test_mistakes_are_named(self):
        for flags, says in (
                (("--nprocs", "2", "true"), "--nprocs"), (("--nproc-per-node", "0", "true"), "'0'"),
                (("--nproc-per-node", "many", "true"), "'many'"), (("--nnodes", "3:2", "true"), "3:2"),
                (("--nnodes", "a", "true"), "'a'"), (("--max-restarts", "-1", "true"), "--max-restarts"),
                (("--rdzv-backend", "etcd", "true"), "--rdzv-backend"), (("--rdzv-conf", "speed=1", "true"), "speed"),
                (("--redirects", "4", "true"), "'4'"), (("--tee", "0:1,1", "true"), "'1'"), ((), "which program"),
                (("--node-rank", "2", "--nnodes", "2", "true"), "--node-rank=2"), (("-m", "--no-python", "x"), "-m"),
                (("--rdzv-backend=c10d", "--nnodes=2", "true"), "--rdzv-endpoint"),
                (("--signals-to-handle=SIGNOT", "true"), "SIGNOT"), (("--log-dir",), "--log-dir"),
                (("no_such_program",), "no_such_program"), (("./no_such.py",), "no_such.py"), (("/etc",), "/etc"),
                (("--numa-binding=x", "true"), "core-complex"),
                (("--event-log-handler=console", "true"), "--event-log-handler"),
                (("--logs-specs=mine", "true"), "--logs-specs"), (("--nproc-per-node=xpu", "true"), "'xpu'"),
                (("--print-completion=fish",), "--print-completion"),
                (("--monitor-interval=abc", "true"), "'abc'"), (("--monitor-interval=0", "true"), "--monitor-interval"),
                (("--monitor-interval=", "true"), "--monitor-interval"), (("--master-port=x", "true"), "--master-port"),
                (("--shutdown-timeout=soon", "true"), "'soon'"),
                *((("--rdzv-conf", f"join_timeout=5,{key}=abc", "true"), f"--rdzv-conf {key}: 'abc'")
                  for key in ("close_timeout", "heartbeat_timeout", "cas_backoff_max_seconds", "rank", "timeout",
                              "keep_alive_interval", "keep_alive_max_attempt", "is_host")),
                (("--master-port=70000", "true"), "--master-port"), (("--rdzv-id=a/b", "true"), "a/b")):
            status, out, err = self.run_agent(*flags)
            self.assertEqual(status, 2, f"{flags}: {out}{err}")
            self.assertIn(says, err, str(flags))
            self.assertLess(len(err), 2000)

    def test_help_lists_the_flags(self):
        out = self.run_well("--help")
        for flag in ("--nnodes", "--nproc-per-node", "--nproc_per_node", "--rdzv-backend", "--max-restarts", "--tee"):
            self.assertIn(flag, out)
        for flag in ("--monitor-interval", "--start-method", "--run-path", "--event-log-handler", "--logs-specs"):
            self.assertRegex(out, rf"(?m)^ +{flag},.*\n.*without effect", "flags that do nothing should say so")

    def test_what_completes_the_flags_is_printed(self):
        for shell in ("bash", "zsh", "tcsh"):
            out = self.run_well("--print-completion", shell)
            self.assertIn("nproc-per-node", out)
        if shutil.which("bash"):
            out = self.run_well("--print-completion=bash")
            check = subprocess.run(["bash", "-c", f"{out}\ncomplete -p athanor; compgen -W '--nnodes' -- --nn"],
                                   capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            self.assertEqual(check.returncode, 0, check.stderr)
            self.assertIn("--rdzv-endpoint", check.stdout)

    def test_explain_names_ranks_devices_and_addresses(self):
        _, _, err = self.run_agent("--explain", "--nproc-per-node=2", self.worker, "out", "x", CUDA_VISIBLE_DEVICES="")
        self.assertRegex(err, r"node 0 of 1, ranks 0 to 1 of 2, store at 127.0.0.1:\d+")
        self.assertIn("rank 1: local rank 1, device cpu", err)


class Programs(LaunchTest):
    def test_modules_and_scripts_run_under_python_the_rest_by_itself(self):
        script = self.write("script.py", "import sys; print('python', sys.argv[0].split('/')[-1], sys.argv[1:])\n")
        self.assertEqual(self.run_well(script, "a"), "python script.py ['a']\n")
        self.assertEqual(self.run_well("-m", "script", "a"), "python script.py ['a']\n")
        self.assertEqual(self.run_well("echo", "hello"), "hello\n")
        own = self.write("own.py", "#!/bin/sh\necho shell\n", 0o755)
        self.assertEqual(self.run_well("--no-python", own), "shell\n")
        self.assertEqual(self.run_well("--no-python", "own.py"), "shell\n")

    def test_python_is_the_one_of_PYTHON_EXEC(self):
        script = self.write("script.py", "")
        python = self.write("snake", "#!/bin/sh\necho $*\n", 0o755)
        self.assertEqual(self.run_well(script, PYTHON_EXEC=python), f"-u {script}\n")
        status, _, err = self.run_agent(script, PYTHON_EXEC="no_such_python")
        self.assertEqual(status, 2)
        self.assertIn("no_such_python", err)

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "under the thread sanitizer a failed exec is a process that ends with 127")
    def test_a_file_that_cannot_be_executed_is_named(self):
        text = self.write("data.txt", "hello")
        status, _, err = self.run_agent(text)
        self.assertEqual(status, 2)
        self.assertIn("may not be executed", err)
        os.chmod(text, 0o755)
        status, _, err = self.run_agent("--nproc-per-node=2", text)
        self.assertEqual(status, 1)
        self.assertIn("data.txt", err)


class Failures(LaunchTest):
    def test_the_first_rank_to_fail_is_named_with_its_last_words(self):
        began = time.monotonic()
        status, _, err = self.run_agent("--nproc-per-node=3", self.worker, "@1", "err", "the disk is full", "@1",
                                        "exit", 7, "hang")
        self.assertEqual(status, 7)
        self.assertIn("rank 1 failed first: exit code 7", err)
        self.assertIn("| the disk is full", err)
        self.assertIn("stopped because of it: rank 0, 2", err)
        self.assertLess(time.monotonic() - began, 10)

    def test_signals_are_named_and_give_128_more(self):
        status, _, err = self.run_agent("--nproc-per-node=2", self.worker, "@0", "raise", 6, "hang")
        self.assertEqual(status, 134)
        self.assertIn("rank 0 failed first: signal 6 (SIGABRT)", err)

    def test_only_the_last_lines_are_repeated(self):
        script = self.write("talk.py", "import sys\nfor i in range(5000): print('line', i, file=sys.stderr)\n"
                            "sys.exit(1)\n")
        status, _, err = self.run_agent(script)
        self.assertEqual(status, 1)
        report = err[err.index("failed first"):]
        self.assertIn("| line 4999\n", report)
        self.assertLess(report.count("| line"), 100)
        self.assertEqual(len(re.findall(r"^line \d+$", err, re.MULTILINE)), 5000)

    def test_what_pytorchs_record_wrote_is_shown(self):
        script = self.write("recorded.py", "import json, os, sys\n"
                            "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
                            "    json.dump({'message': {'message': 'ValueError: odd', 'extraInfo': {'py_callstack': "
                            "'Traceback: here\\nValueError: odd', 'timestamp': '5'}}}, f)\nsys.exit(1)\n")
        for flags in ((), ("--log-dir", self.path("logs"))):
            status, _, err = self.run_agent(*flags, script)
            self.assertEqual(status, 1)
            self.assertIn("it reported:\n    Traceback: here\n    ValueError: odd\n", err)

    def test_all_workers_start_again_as_often_as_allowed(self):
        status, out, err = self.run_agent("--nproc-per-node=2", "--max-restarts=2", self.worker, "meet", "+0", "@1",
                                          "exit", 3, "+1", "@0", "raise", 9, "+0", "hang", "+1", "hang", "out", "done")
        self.assertEqual(status, 0, err)
        self.assertGreaterEqual(out.count("met"), 4, "a failing rank may end the other one just before it says so")
        self.assertEqual(out.count("done"), 2)
        self.assertIn("rank 1 failed first: exit code 3", err)
        self.assertIn("rank 0 failed first: signal 9", err)
        self.assertIn("attempt 2 of 3", err)

    def test_when_no_restart_is_left_the_job_fails(self):
        status, out, _ = self.run_agent("--max-restarts=1", self.worker, "out", "try", "exit", 5)
        self.assertEqual((status, out), (5, "try\ntry\n"))

    def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(self):
        began = time.monotonic()
        status, _, err = self.run_agent("--nproc-per-node=2", "--shutdown-timeout=1", self.worker, "@1", "ignore", "@1",
                                        "touch", self.path("deaf"), "@0", "await", self.path("deaf"), "@0", "exit", 4,
                                        "hang")
        self.assertEqual(status, 4, err)
        self.assertGreater(time.monotonic() - began, 1)
        self.assertLess(time.monotonic() - began, 20)

    def test_a_worker_whose_timer_runs_out_is_ended_and_counts_as_failed(self):
        script = self.write("timers.py", TIMERS)
        for flags, variables in (((), {}), (("--max-restarts=1",), {"TORCHELASTIC_TIMER_FILE": self.path("pipe")})):
            status, out, err = self.run_agent("--nproc-per-node=2", *flags, script, self.path(f"go{len(flags)}"),
                                              TORCHELASTIC_ENABLE_FILE_TIMER="1", **variables)
            self.assertEqual(status, 0 if flags else 128 + signal.SIGKILL, err)
            self.assertRegex(err, r"rank 1: timer 'step' ran out; process \d+ gets signal 9\n")
            self.assertIn("rank 1 failed first: signal 9", err)
            self.assertEqual(out.count("released"), 4 if flags else 2)
            self.assertFalse(os.path.exists(self.path("pipe")))
        status, _, err = self.run_agent(script, TORCHELASTIC_ENABLE_FILE_TIMER="1",
                                        TORCHELASTIC_TIMER_FILE=self.write("file", "precious"))
        self.assertEqual(status, 2)
        self.assertIn("no named pipe", err)
        status, _, err = self.run_agent(script, TORCHELASTIC_ENABLE_FILE_TIMER="1", TMPDIR=self.path("missing"))
        self.assertEqual(status, 2)
        self.assertIn("set TMPDIR", err)

    def test_the_others_say_what_they_were_doing(self):
        # Rank 1 ends once the others have left the barrier: to those still in it its end would be an error.
        left = [self.path("left0"), self.path("left2")]
        status, _, err = self.run_agent("--nproc-per-node=3", self.worker, "group", "@0", "touch", left[0],
                                        "@2", "touch", left[1], "@1", "await", left[0], "@1", "await", left[1],
                                        "@1", "raise", 9, "hang")
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertRegex(err, r"rank 1 failed first: signal 9 [^|]*\n  what the ranks were doing:\n"
                         r"    rank 0: completed up to number [12][^\n]*#2 barrier[^\n]*\n"
                         r"    rank 1: it is gone\n    rank 2: completed up to number [12][^\n]*#2 barrier")
        began = time.monotonic()
        for actions in (("@1", "exit", 3, "hang"), ("meet", "@1", "exit", 3, "hang")):
            status, _, err = self.run_agent("--nproc-per-node=2", self.worker, *actions)
            self.assertEqual(status, 3)
            self.assertNotIn("what the ranks were doing", err)
        self.assertLess(time.monotonic() - began, 20)

    def test_the_port_that_is_taken_is_named(self):
        first = self.start("--master-port", "0", self.worker, "env", "hang")
        port = first.await_lines(r"MASTER_PORT=(\d+)")[0]
        status, _, err = self.run_agent("--master-port", port, "true")
        self.assertEqual(status, 1)
        self.assertIn(port, err)


class Output(LaunchTest):
    def files(self, folder):
        return {os.path.relpath(p, folder): open(p, encoding="utf-8").read()
                for p in glob.glob(folder + "/**/*.log", recursive=True)}

    def test_streams_go_to_a_file_per_rank(self):
        out = self.run_well("--nproc-per-node=2", "--log-dir", self.path("logs"), "-r", "0:3,1:2", "--rdzv-id=j",
                            self.worker, "out", "o{r}", "err", "e{r}")
        self.assertEqual(out, "o1\n")
        (job,) = os.listdir(self.path("logs"))
        self.assertTrue(job.startswith("j_"))
        self.assertEqual(self.files(self.path(f"logs/{job}")),
                         {"attempt_0/0/stdout.log": "o0\n", "attempt_0/0/stderr.log": "e0\n",
                          "attempt_0/1/stderr.log": "e1\n"})

    def test_tee_writes_files_and_prefixed_lines(self):
        status, out, err = self.run_agent("--nproc-per-node=2", "--log-dir", self.path("logs"), "-t", "3", "--role=gpu",
                                          self.worker, "out", "o{r}", "err", "e{r}")
        self.assertEqual(status, 0)
        self.assertEqual(sorted(out.splitlines()), ["[gpu0]:o0", "[gpu1]:o1"])
        self.assertEqual(sorted(err.splitlines()), ["[gpu0]:e0", "[gpu1]:e1"])
        (job,) = os.listdir(self.path("logs"))
        self.assertEqual(self.files(self.path(f"logs/{job}"))["attempt_0/1/stdout.log"], "o1\n")

    def test_chosen_lines_of_all_workers_go_to_one_file_as_well(self):
        for flags in (("--log-dir", self.path("logs")), ("--log-dir", self.path("hidden"), "--local-ranks-filter=1")):
            out = self.run_well("--nproc-per-node=2", *flags, "-t1", "--duplicate-stdout-filters=apple{x},a,,b",
                                self.worker, "out", "apple{r}", "out", "pear", "out", "a,b", "out", "a")
            self.assertIn("[default1]:pear", out)
            (job,) = os.listdir(flags[1])
            lines = self.files(f"{flags[1]}/{job}")["attempt_0/filtered_stdout.log"].splitlines()
            self.assertEqual(sorted(lines), ["[default0]:a,b", "[default1]:a,b"])
        self.run_well("--log-dir", self.path("err"), "-t2", "--duplicate_stderr_filters", "b,c", self.worker, "err", "abc",
                      "raw", "no end, but b")
        (job,) = os.listdir(self.path("err"))
        self.assertEqual(self.files(self.path(f"err/{job}"))["attempt_0/filtered_stderr.log"],
                         "[default0]:abc\n[default0]:no end, but b\n")

    def test_the_prefix_can_be_chosen(self):
        out = self.run_well("-t", "1", "--log-line-prefix-template", "<${rank}/${local_rank} ${role_name}> ",
                            self.worker, "out", "x")
        self.assertEqual(out, "<0/0 default> x\n")

    def test_only_chosen_ranks_are_shown(self):
        status, out, err = self.run_agent("--nproc-per-node=3", "--local-ranks-filter=0,2", self.worker, "out", "o{r}",
                                          "err", "e{r}")
        self.assertEqual(status, 0)
        self.assertEqual((sorted(out.split()), sorted(err.split())), (["o0", "o2"], ["e0", "e2"]))

    def test_a_hidden_rank_that_fails_is_heard(self):
        _, _, err = self.run_agent("--nproc-per-node=2", "--local-ranks-filter=0", self.worker, "@1", "err", "why", "@1",
                                   "exit", 1, "hang")
        self.assertIn("    | why", err)

    def test_a_line_without_end_is_shown_while_the_worker_goes_on(self):
        job = self.start("-t", "2", self.worker, "raw", "50 %", "await", self.path("go"), "raw", " 100 %")
        job.await_lines(r"^\[default0\]:50 %$", which=1)
        open(self.path("go"), "w").close()
        self.assertEqual(job.wait(), 0)
        self.assertEqual(job.err, "[default0]:50 % 100 %")

    def test_restarts_have_files_of_their_own(self):
        self.run_well("--max-restarts=1", "--log-dir", self.path("logs"), "-r3", self.worker, "out", "x", "+0", "exit", 1)
        (job,) = os.listdir(self.path("logs"))
        self.assertEqual(sorted(os.listdir(self.path(f"logs/{job}"))), ["attempt_0", "attempt_1"])

    def test_the_report_quotes_a_redirected_stderr(self):
        _, _, err = self.run_agent("--log-dir", self.path("logs"), "-r", "3", self.worker, "err", "why", "exit", 1)
        self.assertIn("    | why", err)
        self.assertIn("stderr.log", err)

    def test_a_reader_that_leaves_or_is_slow_stops_no_job(self):
        done = subprocess.run(["bash", "-c", f"{self.program} run --nproc-per-node=2 -t 1 seq 1 200000 | head -n 1; "
                               "exit ${PIPESTATUS[0]}"], capture_output=True, timeout=DEADLINE_S, check=False,
                              env=self.environment(), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run(["bash", "-c", f"{self.program} run --nproc-per-node=2 -t 1 seq 1 200000 | "
                               "(sleep 0.3; wc -l)"], capture_output=True, timeout=DEADLINE_S, check=False,
                              env=self.environment(), cwd=self.folder)
        self.assertEqual(done.stdout.strip(), b"400000")


class Signals(LaunchTest):
    def test_sigterm_is_handed_on_and_awaited(self):
        job = self.start("--nproc-per-node=2", self.worker, "polite", "out", "ready", "hang")
        job.await_lines("ready", 2)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.err)
        self.assertEqual(job.out.count("saved"), 2)

    def test_each_of_the_handled_signals_ends_the_job(self):
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            job = self.start(self.worker, "out", "ready", "hang")
            job.await_lines("ready")
            job.process.send_signal(number)
            self.assertEqual(job.wait(), 128 + number)

    def test_a_second_signal_kills(self):
        job = self.start(self.worker, "ignore", "out", "ready", "hang")
        job.await_lines("ready")
        job.process.send_signal(signal.SIGTERM)
        for _ in self.patience():
            if job.process.poll() is not None:
                break
            job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    def test_user_signals_reach_the_workers_and_end_nothing(self):
        script = self.write("s.sh", "trap 'echo got' USR1\necho ready\nwhile [ ! -e go ]; do sleep 0.01; done\n", 0o755)
        job = self.start("--signals-to-handle=SIGTERM,SIGUSR1", "sh", script)
        job.await_lines("ready")
        job.process.send_signal(signal.SIGUSR1)
        job.await_lines("got")
        open(self.path("go"), "w").close()
        self.assertEqual(job.wait(), 0)

    def test_workers_have_no_signal_blocked_or_ignored(self):
        out = self.run_well("grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
        for line in out.splitlines():
            # Python, which runs this test, ignores a signal of its own; 32 and 33 belong to the C library, and whoever
            # started the tests may have left them ignored.
            others = (1 << (signal.SIGXFSZ - 1)) | (1 << 31) | (1 << 32)
            self.assertEqual(int(line.split()[1], 16) & ~others, 0, out)


class NothingStays(LaunchTest):
    def left(self, job, count):
        return [int(pid) for pid in job.await_lines(r"left (\d+)", count)]

    def test_children_and_daemons_end_with_the_job(self):
        status, out, err = self.run_agent("--nproc-per-node=2", self.worker, "child", "daemon")
        self.assertEqual(status, 0, err)
        pids = [int(pid) for pid in re.findall(r"left (\d+)", out)]
        self.assertEqual(len(pids), 4)
        for pid in pids:
            self.await_gone(pid)

    def test_children_end_when_another_rank_fails(self):
        status, out, _ = self.run_agent("--nproc-per-node=2", self.worker, "@0", "child", "@0", "daemon", "@0", "touch",
                                        self.path("up"), "@1", "await", self.path("up"), "@1", "exit", 1, "hang")
        self.assertEqual(status, 1)
        for pid in re.findall(r"left (\d+)", out):
            self.await_gone(int(pid))

    def test_a_killed_agent_leaves_nobody(self):
        job = self.start("--nproc-per-node=2", self.worker, "ignore", "child", "daemon", "hang")
        pids = self.left(job, 4)
        with open(f"/proc/{job.process.pid}/task/{job.process.pid}/children", encoding="utf-8") as file:
            pids += [int(pid) for pid in file.read().split()]
        self.assertGreaterEqual(len(pids), 7)  # with two workers and the guardian
        job.process.kill()
        job.wait()
        for pid in pids:
            self.await_gone(pid)

    def test_no_file_stays_but_logs_that_were_asked_for(self):
        before = set(os.listdir("/dev/shm"))
        os.mkdir(self.path("tmp"))
        self.run_well("--nproc-per-node=2", "-t", "3", self.worker, "out", "x", TMPDIR=self.path("tmp"))
        self.run_agent("--nproc-per-node=2", self.worker, "exit", 1, TMPDIR=self.path("tmp"))
        self.assertEqual(os.listdir(self.path("tmp")), [])
        self.assertLessEqual({n for n in os.listdir("/dev/shm") if "athanor" in n}, before)


class OldLauncher(LaunchTest):
    def test_the_local_rank_stands_before_the_programs_own_arguments(self):
        script = self.write("s.py", "import sys; print(sys.argv[1:])  # --local_rank\n")
        out = self.run_well("--nproc_per_node=2", script, "--lr", "1", subcommand="launch")
        self.assertEqual(sorted(out.splitlines()), [f"['--local_rank={r}', '--lr', '1']" for r in (0, 1)])

    def test_it_is_spelled_as_the_program_spells_it(self):
        for text, flag in (("--local_rank", "--local_rank"), ("--local-rank", "--local-rank"), ("", "--local-rank"),
                           ("--local-rank --local_rank", "--local-rank")):
            script = self.write("s.py", f"import sys; print(sys.argv[1])  # {text}\n")
            self.assertEqual(self.run_well(script, subcommand="launch"), f"{flag}=0\n")
            self.assertEqual(self.run_well("-m", "s", subcommand="launch"), f"{flag}=0\n")
        program = self.write("s", "#!/bin/sh\necho $1 # --local_rank\n", 0o755)
        self.assertEqual(self.run_well(program, subcommand="launch"), "--local_rank=0\n")

    def test_use_env_leaves_the_arguments_alone(self):
        script = self.write("s.py", "import os, sys; print(os.environ['LOCAL_RANK'], sys.argv[1:])\n")
        for flag in ("--use_env", "--use-env", "--use-env=True"):
            self.assertEqual(self.run_well(flag, script, "a", subcommand="launch"), "0 ['a']\n")

    def test_it_says_that_it_is_deprecated_once(self):
        _, _, err = self.run_agent("--nproc_per_node=2", "--use_env", "true", subcommand="launch")
        self.assertEqual(err.count("deprecated"), 1)
        self.assertEqual(len(err.splitlines()), 1)

    def test_no_python_needs_use_env(self):
        status, _, err = self.run_agent("--no_python", "true", subcommand="launch")
        self.assertEqual(status, 2)
        self.assertIn("--use-env", err)
        self.run_well("--no_python", "--use_env", "true", subcommand="launch")

    def test_log_files_have_their_old_names(self):
        script = self.write("s.py", "import sys; print('o'); print('e', file=sys.stderr)\n")
        self.run_well("--nproc_per_node=2", "--logdir", self.path("logs"), script, subcommand="launch")
        self.assertEqual(sorted(os.listdir(self.path("logs"))),
                         [f"node_0_local_rank_{r}_{s}" for r in (0, 1) for s in ("stderr", "stdout")])


if __name__ == "__main__":
    main()
