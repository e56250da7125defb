"""Every optimizer and every schedule that the public headers declare has its row where trajectories are compared with
PyTorch's, where training goes on from a saved state, and where states from files are fuzzed. Layers: their own table
(tests/nn/layer_table_test.cpp) knows all that the headers declare."""

import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import public_names  # noqa: E402


def text_of(*names):
    return "\n".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in names)


def body_of(text, pattern):
    """What stands in the braces of every function whose head fits, up to a closing brace at the line's begin."""
    return "\n".join(re.findall(pattern + r"[^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))


def optimizer_tables(tests, fuzz):
    """Names by table."""
    trajectories = set(re.findall(r"\b(?:walk|with)<(\w+)>", body_of(tests, r"TEST\(\w+, FollowsPyTorch\)")))
    states = set(re.findall(r"operator\(\)<(\w+)>", body_of(tests, r"void for_all_algorithms\(")))
    states |= set(re.findall(r"make_unique<(\w+)>", body_of(tests, r"Valley descend\(")))  # the same for LBFGS
    return {"PyTorch's trajectories": trajectories, "going on from a state": states,
            "fuzzed states": set(re.findall(r"making<optim::(\w+)>", fuzz))}


def schedule_tables(tests):
    """expect_course compares with PyTorch's rates and goes on from a state; the plateau's test does both itself."""
    rows = body_of(tests, r"TEST\(Schedulers, \w*FollowPyTorch\)")
    courses = set(re.findall(r"expect_course\(\s*\"[^\"]*\",\s*made<(\w+)>", rows))
    courses |= set(re.findall(r"return std::make_shared<(\w+)>", rows))
    plateau = body_of(tests, r"TEST\(ReduceLROnPlateau, FollowsPyTorch\)")
    return {"courses": courses | ({"ReduceLROnPlateau"} if "load_state_dict" in plateau else set())}


def lacking(declared, tables):
    return [f"{name}: no row in {table}" for table, rows in tables.items() for name in sorted(declared - rows)]


class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        names = public_names.read_library()
        of = {base: {name for name in names.classes("athanor::optim") if name != base and
                     names.is_a("athanor::optim", name, {base})} for base in ("Optimizer", "LRScheduler")}
        cls.optimizers, cls.schedules = of["Optimizer"], of["LRScheduler"]
        cls.steps = text_of("optim/optim_test.cpp", "optim/algorithms_test.cpp")
        cls.fuzz = text_of("fuzz/pt_optimizer_fuzz.cpp")
        cls.rates = text_of("optim/scheduler_test.cpp")

    def test_every_optimizer_has_its_rows(self):
        self.assertGreaterEqual(len(self.optimizers), 12)
        self.assertEqual(lacking(self.optimizers, optimizer_tables(self.steps, self.fuzz)), [])

    def test_every_schedule_has_its_row(self):
        self.assertGreaterEqual(len(self.schedules), 16)
        self.assertEqual(lacking(self.schedules, schedule_tables(self.rates)), [])

    def test_a_row_that_is_taken_away_is_missed(self):
        for name in sorted(self.optimizers):
            for text in (rf"\b(walk|with)<{name}>", rf"operator\(\)<{name}>" if name != "LBFGS" else "make_unique<LBFGS>"):
                cut = re.sub(text, "gone", self.steps)
                self.assertEqual(len(lacking(self.optimizers, optimizer_tables(cut, self.fuzz))), 1, (name, text))
            cut = self.fuzz.replace(f"making<optim::{name}>", "gone")
            self.assertEqual(len(lacking(self.optimizers, optimizer_tables(self.steps, cut))), 1, name)
        for name in sorted(self.schedules - {"ReduceLROnPlateau"}):
            cut = re.sub(rf"made<{name}>|return std::make_shared<{name}>", "gone", self.rates)
            self.assertEqual(lacking(self.schedules, schedule_tables(cut)), [f"{name}: no row in courses"])
        cut = self.rates.replace("TEST(ReduceLROnPlateau, FollowsPyTorch)", "gone()")
        self.assertEqual(lacking(self.schedules, schedule_tables(cut)), ["ReduceLROnPlateau: no row in courses"])

    def test_a_class_of_the_headers_without_a_row_is_missed(self):
        self.assertEqual(lacking({"Adam", "Lion"}, {"table": {"Adam"}}), ["Lion: no row in table"])


if __name__ == "__main__":
    os.environ.setdefault("CXX", "c++")
    unittest.main()
