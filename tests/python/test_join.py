"""distributed.algorithms.Join: several joinables, hooks in Python, early ends."""
import unittest

import athanor as torch
import athanor.distributed as dist
import ranks
from athanor import nn
from athanor.distributed.algorithms.join import Join, Joinable, JoinHook, _JoinConfig
from athanor.nn.parallel import DistributedDataParallel


class CounterHook(JoinHook):
    def __init__(self, counter, keywords):
        self.counter, self.keywords = counter, keywords

    def main_hook(self):
        self.counter.answered += 1
        dist.all_reduce(torch.zeros(1, dtype=torch.int64))

    def post_hook(self, is_last_joiner):
        self.counter.last = is_last_joiner


class Counter(Joinable):
    """Counts the steps of all ranks together."""

    def __init__(self, group=None):
        super().__init__()
        self.count, self.answered, self.last, self.group = 0, 0, None, group

    def __call__(self):
        Join.notify_join_context(self)
        one = torch.ones(1, dtype=torch.int64)
        dist.all_reduce(one)
        self.count += one.item()

    def join_hook(self, **kwargs):
        return CounterHook(self, kwargs)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group


class Joins(unittest.TestCase):
    def test_hooks_of_the_program_answer_and_learn_who_was_last(self):
        def body(rank, size):
            counter = Counter()
            with Join([counter]) as join:
                for _ in range([1, 4, 4][rank]):
                    counter()
            counter()  # as ever
            return counter.count, counter.answered, counter.last, counter._join_config, type(join).__name__

        outside = _JoinConfig(False, False, False)
        # One step of three, three of two, and the plain one of three.
        self.assertEqual(ranks.run(body, 3), [(6, 3, False, outside, "Join"), (12, 0, True, outside, "Join"),
                                              (12, 0, True, outside, "Join")])

    def test_a_counter_beside_a_wrapped_module_in_either_order(self):
        def body(rank, size, counter_first):
            torch.manual_seed(0)
            ddp = DistributedDataParallel(nn.Linear(2, 1, bias=False))
            counter = Counter()
            seen = []
            with Join([counter, ddp] if counter_first else [ddp, counter], divide_by_initial_world_size=False):
                for step in range(2 + rank):
                    if counter_first:
                        counter()
                    out = ddp(torch.ones(1, 2) * (rank + 1))
                    ddp.zero_grad()
                    out.sum().backward()
                    if not counter_first:
                        counter()
                    seen.append(ddp.module.weight.grad[0, 0].item())
            return seen, counter.count, counter.answered, counter.last

        for first in (True, False):
            with self.subTest(counter_first=first):
                self.assertEqual(ranks.run(body, args=(first,)),
                                 [([1.5, 1.5], 4, 1, False), ([1.5, 1.5, 2.0], 5, 0, True)])

    def test_keywords_reach_every_hook(self):
        def body(rank, size):
            counters = [Counter(), Counter()]
            join = Join(counters, enable=False, depth=3)
            with join:
                counters[0]()
                inside = [c._join_config for c in counters]
            return [h.keywords for h in join._hooks], inside, counters[0].last

        outside = ([{"depth": 3}] * 2, [_JoinConfig(False, False, True), _JoinConfig(False, False, False)], None)
        self.assertEqual(ranks.run(body), [outside] * 2)

    def test_all_ranks_raise_when_one_ends_early_if_asked(self):
        def body(rank, size):
            counter = Counter()
            try:
                with Join([counter], throw_on_early_termination=True):
                    for _ in range(1 + rank):
                        counter()
            except RuntimeError as error:
                return "rank 0 ran out of inputs" in str(error), counter.count, counter._join_config.enable

        self.assertEqual(ranks.run(body), [(True, 2, False)] * 2)

    def test_what_a_hook_raises_comes_out_of_the_block(self):
        def body(rank, size):
            counter = Counter()

            def fail():
                dist.all_reduce(torch.zeros(1, dtype=torch.int64))
                raise KeyError("of the hook")

            try:
                with Join([counter]) as join:
                    join._hooks[0].main_hook = fail
                    for _ in range(2 + rank):
                        counter()
            except KeyError as error:
                return str(error)
            except RuntimeError:
                return "the others see it go"

        self.assertEqual(ranks.run(body), ["'of the hook'", "the others see it go"])

    def test_mistakes(self):
        def body(rank, size):
            class Forgot(Counter):
                def __init__(self):
                    pass

            half = dist.new_group([0, 1])
            seen = []
            for call in (lambda: Join([]), lambda: Join([nn.Linear(1, 1)]), lambda: Forgot()(), lambda: Joinable(),
                         lambda: Join([Counter(), Counter(half)]).__enter__()):
                try:
                    call()
                except Exception as error:
                    seen.append(type(error).__name__)
            return seen

        self.assertEqual(ranks.run(body), [["ValueError", "TypeError", "AssertionError", "TypeError", "ValueError"]] * 2)

    def test_a_loop_that_raises_answers_nobody(self):
        def body(rank, size):
            counter = Counter()
            try:
                with Join([counter]):
                    counter()
                    raise ZeroDivisionError
            except ZeroDivisionError:
                return counter.answered, counter.last, counter._join_config.enable

        self.assertEqual(ranks.run(body), [(0, None, False)] * 2)


if __name__ == "__main__":
    unittest.main()
