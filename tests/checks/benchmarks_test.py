"""The benchmark runner keeps its protocol and draws the right verdicts."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
sys.path.insert(0, os.path.join(ROOT, "benchmarks", "peers"))
import collectives  # noqa: E402
import ddp_mnist  # noqa: E402
import peer_pythons  # noqa: E402
import report  # noqa: E402
import targets  # noqa: E402
import torch_protocol  # noqa: E402
from sides import Side, let_rest  # noqa: E402

LIMITS_PROGRAM = os.environ.get("BENCH_LIMITS", "")


def answer(items: float, seconds: float) -> dict:
    return {"unit": "element", "items_per_iter": items, "seconds": [seconds * 3, seconds, seconds]}


def result(row: str, sides: dict, limits: dict = None, threads: int = 1) -> report.RowResult:
    answers = {}
    for name, seconds in sides.items():
        side, _, way = name.partition("@")
        answers.setdefault(side, {})[way] = answer(100, seconds)
    return report.RowResult(row, threads, answers, set(answers) - {"athanor"}, limits or {})


class Verdicts(unittest.TestCase):
    def test_ratio_is_to_the_fastest_peer_by_medians(self):
        r = result("sum.all/1e6", {"athanor": 1.0, "torch 2 plain": 3.0, "torch 2 tuned": 2.0})
        self.assertEqual((r.best_peer, r.ratio, r.verdict), ("torch 2 tuned", 2.0, "met"))

    def test_slower_than_the_target_is_missed(self):
        self.assertEqual(result("sum.all/1e6", {"athanor": 1.0, "torch 2 plain": 0.9}).verdict, "MISSED")
        self.assertEqual(result("exp.new/1e6", {"athanor": 1.0, "torch 2 plain": 1.9}).verdict, "MISSED")

    def test_near_the_limit_counts_as_met(self):
        sides = {"athanor": 1.0, "torch 2 plain": 0.9}
        self.assertEqual(result("sum.all/1e6", sides, {"limit.read/1e6": 100 / 0.86}).verdict, "met by limit")
        self.assertEqual(result("sum.all/1e6", sides, {"limit.read/1e6": 100 / 0.84}).verdict, "MISSED")

    def test_another_way_counts_and_is_told_apart(self):
        r = result("mnist.conv/b64", {"athanor": 1.0, "torch 2 plain": 4.0, "torch 2 plain@channels_last": 2.0})
        self.assertEqual((r.best_peer, r.ratio, r.same_way_ratio), ("torch 2 plain @channels_last", 2.0, 4.0))

    def test_some_targets_name_their_peers(self):
        r = result("overhead.add.no_grad/64", {"athanor": 1.0, "onednn": 1.0, "libtorch 2 plain": 6.0})
        self.assertEqual((r.best_peer, r.verdict), ("libtorch 2 plain", "met"))
        r = result("add.new/1e8", {"athanor": 1.0, "torch 2 plain": 6.0, "torch 2 tuned": 2.0})
        self.assertEqual((r.best_peer, r.verdict), ("torch 2 plain", "met"))

    def test_a_row_may_have_to_reach_several_ratios(self):
        r = result("resnet50.step/b16s128", {"athanor": 1.0, "torch 2 plain": 1.25, "torch 2 tuned": 1.2})
        self.assertEqual([(t.best_peer, t.ratio, t.verdict) for t in r.targets],
                         [("torch 2 tuned", 1.2, "met"), ("torch 2 plain", 1.25, "MISSED")])
        self.assertEqual((r.best_peer, r.ratio, r.verdict), ("torch 2 plain", 1.25, "MISSED"))
        lines = report.table_lines(r.as_json())
        self.assertEqual([(line[4], line[7], line[9]) for line in lines],
                         [("torch 2 tuned", ">= 1.15", "met"), ("torch 2 plain", ">= 1.30", "MISSED")])
        r = result("resnet50.step/b16s128", {"athanor": 1.0, "torch 2 plain": 1.4, "torch 2 tuned": 1.1})
        self.assertEqual((r.best_peer, r.verdict), ("torch 2 tuned", "MISSED"))
        r = result("resnet50.step/b16s128", {"athanor": 1.0, "torch 2 plain": 1.4, "torch 2 tuned": 1.2})
        self.assertEqual(r.verdict, "met")

    def test_of_several_targets_those_without_a_peer_give_no_verdict(self):
        r = result("resnet50.step/b16s128", {"athanor": 1.0, "torch 2 tuned": 1.2})
        self.assertEqual(([t.verdict for t in r.targets], r.verdict), (["met", ""], "met"))

    def test_a_separate_way_counts_for_its_own_target_only(self):
        for batch in ("b1", "b16"):
            sides = {"athanor": 1.0, "athanor@no_winograd": 1.1, "torch 2 plain": 1.2, "torch 2 tuned@channels_last": 1.16}
            r = result(f"resnet50.forward/{batch}s224", sides)
            self.assertEqual([(round(t.ratio, 3), t.verdict) for t in r.targets], [(1.16, "met"), (1.055, "met")])
            sides["athanor@no_winograd"] = 1.2
            r = result(f"resnet50.forward/{batch}s224", sides)
            self.assertEqual([t.verdict for t in r.targets], ["met", "MISSED"])
            self.assertEqual(r.verdict, "MISSED")
            self.assertEqual([line[0] for line in report.table_lines(r.as_json())],
                             [f"resnet50.forward/{batch}s224", f"resnet50.forward/{batch}s224@no_winograd"])
            sides = {"athanor": 1.1, "athanor@no_winograd": 1.0, "torch 2 plain": 1.2}
            self.assertEqual(result(f"resnet50.forward/{batch}s224", sides).targets[0].verdict, "MISSED")

    def test_a_share_of_the_limit_that_a_row_has_to_reach_is_asked_beside_its_ratio(self):
        sides = {"athanor": 1.0, "torch 2 plain": 1.0}
        for threads, least in ((1, 0.94), (2, 0.92)):
            for share, verdict in ((least + 0.01, "met"), (least - 0.01, "MISSED")):
                r = result("gemm.f32/2048", sides, {"limit.fma.f32": 100 / share}, threads)
                self.assertEqual([t["verdict"] for t in r.as_json()["targets"]], ["met", verdict])
                self.assertEqual((r.verdict, r.as_json()["verdict"], r.best_peer), (verdict, verdict, "torch 2 plain"))

    def test_no_peer_or_no_row_of_ours_gives_no_verdict(self):
        self.assertEqual(result("sum.all/1e6", {"athanor": 1.0}).verdict, "")
        self.assertEqual(result("sum.all/1e6", {"torch 2 plain": 1.0}).verdict, "")

    def test_fills_are_held_against_bytes(self):
        self.assertEqual(targets.work_against_limit("normal.fill/1e6", 10), 40)
        self.assertEqual(targets.limit_of("normal.fill/1e6"), "limit.fill/1e6")
        self.assertEqual(targets.limit_of("gemm.bf16/1024"), "limit.fma.bf16")
        self.assertIsNone(targets.limit_of("sort/1e6"))
        self.assertIsNone(targets.limit_of("mnist.conv/b64"))

    def test_copies_past_the_caches_bound_no_row_of_1e6(self):
        self.assertFalse(targets.bounds("limit.copy/1e6", "ahead"))
        for limit, way in (("limit.copy/1e6", "turns"), ("limit.copy/1e8", "ahead"), ("limit.add/1e6", "streaming")):
            self.assertTrue(targets.bounds(limit, way))

    def test_training_steps_are_held_against_the_operations_of_their_products(self):
        parameters, keys = 4 * 12 * 256**2 + 256 * 65, 4 * sum(range(1, 129)) / 128
        self.assertAlmostEqual(targets.work_against_limit("gpt.step/l4e256s128b8", 1), 6 * (parameters + 2 * keys * 256))
        weights = 2 * 4 * 256 * (256 + 256)
        self.assertAlmostEqual(targets.work_against_limit("lstm.step/l2h256s64b32", 1), 6 * weights - 2 * 4 * 256 * 256)
        self.assertEqual(targets.limit_of("gpt.step/l4e256s128b8"), "limit.fma.f32")
        self.assertIsNone(targets.limit_of("gpt.step.bf16/l4e256s128b8"))

    def test_summary_and_merge(self):
        first = result("gemm.f32/64", {"athanor": 1.0, "onednn": 2.0}).as_json()
        again = result("gemm.f32/64", {"athanor": 1.0, "onednn": 3.0}).as_json()
        other = result("gemm.f32/128", {"athanor": 1.0, "onednn": 0.5}).as_json()
        document = {"machine": {"cpus": 2, "commit": "abc"}, "peers": [], "product": []}
        merged = report.merge({**document, "rows": [first, other]}, {**document, "rows": [again]})
        self.assertEqual([row["ratio"] for row in merged["rows"]], [0.5, 3.0])
        self.assertIn("| gemm.f32 | 0.50 to 3.00 |  | 0.97 |  | MISSED, met |", report.summary(merged))
        self.assertEqual(report.markdown(merged["rows"]).count("\n"), 4)
        self.assertIn("2.00 x", report.format_line(report.table_lines(first)[0]))

    def test_readme_keeps_what_is_around_the_figures(self):
        with tempfile.NamedTemporaryFile("w+", suffix=".md") as file:
            file.write("a\n<!-- measured:begin -->\nold\n<!-- measured:end -->\nb\n")
            file.flush()
            report.put_into_readme(file.name, "new\n")
            with open(file.name, encoding="utf-8") as again:
                self.assertEqual(again.read(), "a\n<!-- measured:begin -->\nnew\n<!-- measured:end -->\nb\n")

    def test_every_limit_is_one_that_the_program_measures(self):
        known = Side("limits", [LIMITS_PROGRAM], 1, {}, False, 60) if LIMITS_PROGRAM else None
        if known is None:
            self.skipTest("no bench_limits")
        self.addCleanup(known.close)
        for row in ("add.new/1e6", "exp.out/1e8", "sum.first/1e8", "uniform.fill/1e6"):
            self.assertIn(targets.limit_of(row), known.rows)


class Peers(unittest.TestCase):
    def test_several_interpreters_stand_between_colons(self):
        with mock.patch.dict(os.environ, {"ATHANOR_PEER_PYTHON": f"missing:{sys.executable}::{sys.executable}"}):
            self.assertEqual(peer_pythons.named_pythons("other"), ["missing", sys.executable])
            self.assertEqual(list(peer_pythons.pythons_with("json").values()), [sys.executable])
        with mock.patch.dict(os.environ, {"ATHANOR_PEER_PYTHON": ""}):
            self.assertEqual(peer_pythons.named_pythons("other"), ["other"])
            self.assertEqual(peer_pythons.pythons_with("json"), {})

    def test_collectives_have_ratios_of_means_and_of_small_sizes_medians(self):
        table = {("all_reduce", 8): {"athanor": {"seconds": [2e-6], "p50": [1e-6]},
                                     "mpi": {"seconds": [4e-6], "p50": [3e-6]}, "gloo": {"seconds": [5e-6]}},
                 ("all_reduce", 1 << 20): {"athanor": {"seconds": [2e-3], "p50": [1e-3]},
                                           "mpi": {"seconds": [3e-3], "p50": [9e-3]}}}
        head, small, large = (line.split() for line in collectives.table_lines(table))
        self.assertEqual((head.count("p50"), small), (3, ["all_reduce", "8", "2.00", "1.00", "2.50", "-", "2.00", "3.00"]))
        self.assertEqual(large, ["all_reduce", str(1 << 20), "2000.00", "-", "1.50"])

    def test_data_parallel_is_held_against_its_limit_of_the_same_round_and_the_fastest_peer(self):
        rates = {"one rank": [50, 60, 70], ddp_mnist.LIMIT: [100, 200, 400], ddp_mnist.OURS: [90, 100, 320],
                 "PyTorch 2 plain": [30, 25, 80], "PyTorch 2 channels_last": [45, 50, 160]}
        *_, limit, peer = ddp_mnist.report(rates)
        self.assertIn("reaches 0.80 of", limit)
        self.assertTrue(peer.endswith("is 2.00 times the fastest of PyTorch's: PyTorch 2 channels_last"), peer)

    def test_every_setting_of_the_peer_is_a_side_of_its_own(self):
        ways = ddp_mnist.settings_of(["foreach"])
        self.assertEqual(len({tuple(way) for way in ways}), len(ways))
        self.assertIn(["foreach"], ways)


class Protocol(unittest.TestCase):
    def test_python_rows_are_timed_per_call(self):
        clock = [0.0]  # moves by a call's microsecond only: another program's turn on the processor counts for nothing

        def call():
            clock[0] += 1e-6

        program = torch_protocol.Program("x", "1", 1)
        program.add("row", "call", 2, lambda: call)
        with mock.patch.object(torch_protocol.time, "perf_counter", lambda: clock[0]):
            reply = program.run("row", 3, 0.001)
        self.assertEqual(len(reply["seconds"]), 3)
        for seconds in reply["seconds"]:
            self.assertAlmostEqual(seconds, 1e-6, places=9)
        self.assertGreater(clock[0], 4 * 0.001)  # each sample of as many calls as fill the time, after one that found them

    def test_python_errors_are_answers(self):
        program = torch_protocol.Program("x", "1", 1)
        program.add("bad", "call", 1, lambda: 1 / 0)
        self.assertIn("ZeroDivisionError", program.run("bad", 1, 0.001)["error"])
        self.assertIn("no such row", program.run("none", 1, 0.001)["error"])

    @unittest.skipUnless(LIMITS_PROGRAM, "no bench_limits")
    def test_program_answers_and_survives_nonsense(self):
        requests = "run limit.copy/1e6 2 0.001\nrun nothing 1 0.001\nnonsense\nforget\nrun limit.read/1e6 1 0.001\nquit\n"
        done = subprocess.run([LIMITS_PROGRAM], input=requests, capture_output=True, text=True, check=True, timeout=60)
        hello, copy, missing, unknown, read = map(json.loads, done.stdout.splitlines())
        self.assertIn("limit.copy/1e6", hello["rows"])
        self.assertEqual((len(copy["seconds"]), copy["unit"], copy["items_per_iter"]), (2, "B", 8e6))
        self.assertEqual(missing["error"], "no such row")
        self.assertIn("unknown request", unknown["error"])
        self.assertEqual(len(read["seconds"]), 1)

    @unittest.skipUnless(LIMITS_PROGRAM, "no bench_limits")
    def test_a_side_that_ends_is_reported(self):
        with self.assertRaisesRegex(RuntimeError, "quick ended"):
            Side("quick", ["/bin/true"], 1, {}, False, 10)
        with self.assertRaisesRegex(RuntimeError, "mute gave no answer"):
            Side("mute", ["/bin/sleep", "5"], 1, {}, False, 0.2)

    def test_a_side_rests_when_none_of_its_threads_runs(self):
        hello = 'print(\'{"threads": 1}\', flush=True)'
        for end, rests in (("input()", True), ("\nwhile True: pass", False)):
            side = Side(end, [sys.executable, "-c", f"{hello};{end}" if rests else hello + end], 1, {}, False, 60)
            self.addCleanup(side.process.wait)
            self.addCleanup(side.process.kill)
            self.assertEqual(let_rest([side], 5 if rests else 0.05), rests)


if __name__ == "__main__":
    unittest.main()
