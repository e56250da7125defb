"""The profiler as Python sees it: tables, events, schedules, traces."""
import gzip
import json
import os
import tempfile
import threading
import unittest

import athanor as torch
from athanor.profiler import (ProfilerAction, ProfilerActivity, profile, record_function, schedule,
                              tensorboard_trace_handler)

NET = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def work():
    NET(torch.ones(3, 8)).sum().backward()


def averages(prof, **how):
    return {a.key: a for a in prof.key_averages(**how)}


class Profiles(unittest.TestCase):
    def test_count_calls_forward_and_backward(self):
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            for _ in range(3):
                work()
        rows = averages(prof)
        self.assertEqual(rows["linear"].count, 6)
        self.assertEqual(rows["relu"].count, 3)
        self.assertIn("AddmmBackward0", rows)
        self.assertAlmostEqual(rows["linear"].cpu_time * 6, rows["linear"].cpu_time_total)
        self.assertGreaterEqual(rows["AddmmBackward0"].cpu_time_total, rows["AddmmBackward0"].self_cpu_time_total)
        total = prof.key_averages().total_average()
        self.assertEqual(total.count, sum(a.count for a in rows.values()))
        self.assertAlmostEqual(total.self_cpu_time_total, prof.key_averages().self_cpu_time_total, places=3)

    def test_group_by_shapes_and_memory(self):
        with profile(record_shapes=True, profile_memory=True) as prof:
            kept = [torch.ones(n) + 1 for n in (100, 100, 300)]
        rows = [(a.input_shapes, a.count) for a in prof.key_averages(group_by_input_shape=True) if a.key == "add"]
        self.assertEqual(sorted(rows), [("[[100]]", 2), ("[[300]]", 1)])
        self.assertGreaterEqual(averages(prof)["add"].self_cpu_memory_usage, 4 * 500)
        self.assertIn("Self CPU Mem", prof.key_averages().table())
        self.assertEqual(len(kept), 3)

    def test_tables_sort_and_limit(self):
        with profile() as prof:
            work()
        table = prof.key_averages().table(sort_by="count", row_limit=2).splitlines()
        self.assertIn("# of Calls", table[1])
        self.assertEqual(len([line for line in table if line.rstrip().endswith(tuple("0123456789"))]), 2)
        self.assertIn("Self CPU time total", str(prof.key_averages()))
        with self.assertRaises(ValueError):
            prof.key_averages().table(sort_by="self_cuda_time_total")
        with self.assertRaises(TypeError):
            prof.key_averages().table(colour="red")

    def test_events_are_nested(self):
        with profile() as prof:
            with record_function("outer"):
                with record_function("inner"):
                    torch.ones(2)
        events = {e.name: e for e in prof.events()}
        self.assertIs(events["inner"].cpu_parent, events["outer"])
        self.assertIn(events["inner"], events["outer"].cpu_children)
        self.assertTrue(events["outer"].is_user_annotation)
        outer, inner = events["outer"].time_range, events["inner"].time_range
        self.assertLessEqual(outer.start, inner.start)
        self.assertGreaterEqual(outer.elapsed_us(), inner.elapsed_us())

    def test_backward_names_its_forward_call(self):
        x = torch.ones(2, requires_grad=True)
        with profile() as prof:
            (x * 3).sum().backward()
        forward = next(e for e in prof.events() if e.name == "mul")
        backward = next(e for e in prof.events() if e.name == "MulBackward0")
        self.assertGreaterEqual(forward.sequence_nr, 0)
        self.assertEqual(forward.sequence_nr, backward.sequence_nr)

    def test_all_threads_are_recorded(self):
        with profile() as prof:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.assertGreater(averages(prof)["relu"].count, 0)

    def test_scopes_as_decorators_nest(self):
        @record_function("step")
        def step(depth):
            return step(depth - 1) if depth else torch.ones(1)

        step(2)  # nobody records
        with profile() as prof:
            step(2)
        self.assertEqual(averages(prof)["step"].count, 3)

    def test_one_at_a_time(self):
        with profile():
            with self.assertRaises(RuntimeError):
                profile().start()
        with profile():
            pass

    def test_nothing_before_the_end(self):
        prof = profile()
        for ask in (prof.key_averages, prof.events, lambda: prof.export_chrome_trace("x")):
            with self.assertRaisesRegex(AssertionError, "must have recorded"):
                ask()

    def test_what_is_not_recorded_is_said(self):
        with self.assertWarnsRegex(UserWarning, "with_stack, with_flops is not recorded"):
            profile(with_stack=True, with_flops=True)
        with self.assertRaises(ValueError):
            profile(activities=[])

    def test_an_exception_ends_the_recording(self):
        with self.assertRaises(KeyError):
            with profile() as prof:
                torch.ones(2) + 1
                raise KeyError
        self.assertIn("add", averages(prof))


class Schedules(unittest.TestCase):
    def test_cycles(self):
        names = [a.name for a in map(schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1), range(11))]
        cycle = ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
        self.assertEqual(names, ["NONE"] + cycle * 2 + ["NONE"] * 2)
        self.assertIs(schedule(wait=0, warmup=0, active=1)(99), ProfilerAction.RECORD_AND_SAVE)
        for wrong in (dict(wait=0, warmup=0, active=0), dict(wait=-1, warmup=0, active=1)):
            with self.assertRaises(ValueError):
                schedule(**wrong)

    def test_each_cycle_is_handed_over(self):
        seen = []

        def ready(prof):
            seen.append((prof.step_num, [e.name for e in prof.events() if e.name.startswith("ProfilerStep")]))

        with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as prof:
            for _ in range(12):
                work()
                prof.step()
        self.assertEqual(seen, [(4, ["ProfilerStep#2", "ProfilerStep#3"]), (8, ["ProfilerStep#6", "ProfilerStep#7"])])

    def test_consecutive_cycles_and_a_stop_in_the_middle(self):
        seen = []
        with profile(schedule=schedule(wait=0, warmup=0, active=2), on_trace_ready=lambda p: seen.append(p.step_num)) as prof:
            for _ in range(5):
                prof.step()
        self.assertEqual(seen, [2, 4, 5])

    def test_a_schedule_that_forgets_to_save_is_warned_of(self):
        with self.assertWarnsRegex(UserWarning, "RECORD_AND_SAVE"):
            with profile(schedule=lambda step: ProfilerAction.RECORD if step == 0 else ProfilerAction.NONE) as prof:
                prof.step()


class Traces(unittest.TestCase):
    def test_are_json_plain_and_compressed(self):
        with tempfile.TemporaryDirectory() as folder:
            with profile() as prof:
                work()
            plain, packed = os.path.join(folder, "trace.json"), os.path.join(folder, "trace.json.gz")
            prof.export_chrome_trace(plain)
            prof.export_chrome_trace(packed)
            with open(plain) as a, gzip.open(packed) as b:
                trace = json.load(a)
                self.assertEqual(trace, json.load(b))
            self.assertIn("relu", {e.get("name") for e in trace["traceEvents"]})
            self.assertEqual(sorted(os.listdir(folder)), ["trace.json", "trace.json.gz"])
            with self.assertRaises(OSError):
                prof.export_chrome_trace(os.path.join(folder, "none", "trace.json"))
            with self.assertRaises(RuntimeError):
                prof.key_averages().export_chrome_trace(plain)

    def test_go_to_a_folder_of_tensorboard(self):
        with tempfile.TemporaryDirectory() as folder:
            logs = os.path.join(folder, "logs")
            with profile(on_trace_ready=tensorboard_trace_handler(logs, "me")):
                work()
            (name,) = os.listdir(logs)
            self.assertRegex(name, r"me\.\d+\.pt\.trace\.json")


class OldNames(unittest.TestCase):
    def test_autograd_profiler(self):
        with torch.autograd.profiler.profile(record_shapes=True) as prof:
            self.assertRegex(str(prof), "unfinished")
            with torch.autograd.profiler.record_function("mine"):
                work()
        self.assertIn("mine", {e.name for e in prof.function_events})
        self.assertEqual(averages(prof)["relu"].count, 1)
        self.assertGreater(prof.self_cpu_time_total, 0)
        self.assertIn("relu", prof.table(sort_by="cpu_time_total", row_limit=50))
        with self.assertRaisesRegex(RuntimeError, "not reentrant"):
            prof.__enter__()

    def test_switched_off(self):
        with torch.autograd.profiler.profile(enabled=False) as prof:
            work()
        with self.assertRaisesRegex(RuntimeError, "didn't finish"):
            prof.key_averages()
