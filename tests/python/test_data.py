"""Datasets, samplers, collation and the DataLoader with and without worker processes."""

from __future__ import annotations

import collections
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock
import warnings

import athanor
from athanor.utils import data
from athanor.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset


class Numbers(Dataset):
    """Examples (tensor of the index, index, text); fails, dies or waits at an index if told to."""

    def __init__(self, n: int = 40, fail: int = -1, die: int = -1, wait: float = 0.0, width: int = 3) -> None:
        self.n, self.fail, self.die, self.wait, self.width = n, fail, die, wait, width

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        if i == self.fail:
            raise KeyError("no such example")
        if i == self.die:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.wait:
            time.sleep(self.wait)
        return athanor.full((self.width,), float(i)), i, str(i)


class Stream(IterableDataset):
    """0 … n - 1, shared out among the workers."""

    def __init__(self, n: int = 23, length=None) -> None:
        self.n, self.length = n, length

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.n, step))

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("no length")
        return self.length


class Draws(Dataset):
    """What the generators of a worker give."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int):
        import random

        return athanor.rand(1), random.random(), data.get_worker_info().id


class Products(Dataset):
    """Uses as many threads as it is told to."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int):
        athanor.set_num_threads(self.threads)
        return (athanor.ones(400, 400) @ athanor.ones(400, 400)).exp().isinf().sum()


def mark_worker(worker_id: int) -> None:
    data.get_worker_info().dataset.n = 1000 + worker_id


class SeesInit(Dataset):
    n = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return self.n


def fail_in_init(worker_id: int) -> None:
    raise ValueError("init does not like this")


class Unpicklable(Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int):
        return lambda: i


def identity(x):
    return x


def indices(loader: DataLoader) -> list:
    return [int(i) for batch in loader for i in batch[1]]


def setUpModule() -> None:
    warnings.filterwarnings("ignore", message="This DataLoader will create")


class Collation(unittest.TestCase):
    def test_structures_are_collated_entry_by_entry(self) -> None:
        point = collections.namedtuple("point", "x y")
        batch = [{"a": athanor.ones(2) * i, "b": [i, float(i)], "c": point(i, "t"), "d": i > 0} for i in range(3)]
        result = data.default_collate(batch)
        self.assertEqual(result["a"].tolist(), [[0, 0], [1, 1], [2, 2]])
        self.assertEqual(result["b"][0].tolist(), [0, 1, 2])
        self.assertIs(result["b"][0].dtype, athanor.int64)
        self.assertIs(result["b"][1].dtype, athanor.float64)
        self.assertEqual(result["c"].x.tolist(), [0, 1, 2])
        self.assertEqual(result["c"].y, ("t", "t", "t"))
        self.assertIs(result["d"].dtype, athanor.bool)

    def test_numpy_becomes_tensors(self) -> None:
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        result = data.default_collate([numpy.full(2, i, dtype=numpy.int32) for i in range(2)])
        self.assertEqual(result.tolist(), [[0, 0], [1, 1]])
        self.assertIs(result.dtype, athanor.int32)
        self.assertIs(data.default_collate([numpy.float32(1), numpy.float32(2)]).dtype, athanor.float32)

    def test_numpys_texts_and_mapped_arrays_are_collated(self) -> None:
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        texts = numpy.array(["a", "b"])
        self.assertIs(data.default_collate(texts), texts)
        self.assertEqual(data.default_collate([{"name": numpy.str_("a")}, {"name": numpy.str_("b")}]), {"name": ["a", "b"]})
        with tempfile.TemporaryFile() as file:
            rows = numpy.memmap(file, numpy.float32, "w+", shape=(2, 2))
            rows[:] = [[0, 1], [2, 3]]
            self.assertEqual(data.default_collate(list(rows)).tolist(), [[0, 1], [2, 3]])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(data.default_convert([numpy.float32(1.5)])[0].dtype, athanor.float32)

    def test_what_cannot_be_collated_is_an_error(self) -> None:
        with self.assertRaisesRegex(TypeError, "batch must contain tensors.*object"):
            data.default_collate([object()])
        with self.assertRaisesRegex(RuntimeError, "equal size"):
            data.default_collate([[1, 2], [1]])


class Parts(unittest.TestCase):
    def test_concatenated_datasets_are_one(self) -> None:
        both = TensorDataset(athanor.arange(3)) + TensorDataset(athanor.arange(10, 12))
        self.assertEqual([int(both[i][0]) for i in range(len(both))], [0, 1, 2, 10, 11])
        self.assertEqual(int(both[-1][0]), 11)
        with self.assertRaises(ValueError):
            both[-6]

    def test_random_split_shares_everything_out(self) -> None:
        generator = athanor.Generator()
        generator.manual_seed(1)
        parts = data.random_split(range(10), [0.55, 0.45], generator)
        self.assertEqual([len(p) for p in parts], [6, 4])
        self.assertEqual(sorted(i for p in parts for i in p), list(range(10)))
        with self.assertRaisesRegex(ValueError, "Sum of input lengths"):
            data.random_split(range(10), [5, 4])

    def test_tensors_of_different_lengths_are_refused(self) -> None:
        with self.assertRaisesRegex(AssertionError, "Size mismatch"):
            TensorDataset(athanor.zeros(2), athanor.zeros(3))

    def test_stacked_datasets_give_dicts(self) -> None:
        stacked = data.StackDataset(a=range(3), b=range(3, 6))
        self.assertEqual(stacked[1], {"a": 1, "b": 4})
        self.assertEqual(stacked.__getitems__([0, 2]), [{"a": 0, "b": 3}, {"a": 2, "b": 5}])


class Samplers(unittest.TestCase):
    def test_a_random_order_holds_every_index_once(self) -> None:
        order = list(data.RandomSampler(range(100)))
        self.assertEqual(sorted(order), list(range(100)))
        self.assertNotEqual(order, list(range(100)))
        self.assertEqual(len(list(data.RandomSampler(range(3), num_samples=10))), 10)
        self.assertEqual(len(list(data.RandomSampler(range(3), replacement=True, num_samples=5000))), 5000)

    def test_weights_decide_how_often(self) -> None:
        drawn = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
        counts = collections.Counter(drawn)
        self.assertEqual(counts[0], 0)
        self.assertAlmostEqual(counts[2] / 4000, 0.75, delta=0.05)
        self.assertEqual(sorted(data.WeightedRandomSampler([1.0, 1.0, 1.0], 3, replacement=False)), [0, 1, 2])

    def test_shares_of_ranks_are_even_and_cover_all(self) -> None:
        for drop_last in (False, True):
            shares = []
            for rank in range(3):
                sampler = data.DistributedSampler(range(10), 3, rank, drop_last=drop_last, seed=5)
                sampler.set_epoch(2)
                shares.append(list(sampler))
                self.assertEqual(len(shares[-1]), len(sampler))
            self.assertEqual({len(s) for s in shares}, {3 if drop_last else 4})
            together = {i for s in shares for i in s}
            self.assertEqual(len(together), 9 if drop_last else 10)
        with self.assertRaisesRegex(ValueError, "Invalid rank 3"):
            data.DistributedSampler(range(10), 3, 3)

    def test_a_second_pass_of_the_same_epoch_is_warned_of_once(self) -> None:
        sampler = data.DistributedSampler(range(10), 2, 0)
        sampler.set_epoch(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(sampler)
            self.assertEqual([str(w.message) for w in caught], [])
            for _ in range(3):
                list(DataLoader(range(10), sampler=sampler))
            self.assertEqual(len(caught), 1)
            self.assertIn("without set_epoch()", str(caught[0].message))

    def test_passes_of_other_epochs_or_in_order_are_not_warned_of(self) -> None:
        shuffled, plain = (data.DistributedSampler(range(10), 2, 0, shuffle=s) for s in (True, False))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for epoch in range(3):
                shuffled.set_epoch(epoch)
                list(shuffled)
                list(plain)

    def test_a_share_goes_on_inside_an_epoch(self) -> None:
        for batch_size in (1, 3):
            one = data.DistributedSampler(range(50), 2, 1, seed=3)
            one.set_epoch(4)
            batches = iter(DataLoader(range(50), batch_size, sampler=one))
            for _ in range(2):
                next(batches)
            state = one.state_dict()
            self.assertEqual(state, {"seed": 3, "epoch": 4, "position": 2 * batch_size})
            two = data.DistributedSampler(range(50), 2, 1)
            two.load_state_dict(state)
            self.assertEqual(two.state_dict(), state)
            two.set_epoch(4)
            rest = [b.tolist() for b in batches]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual([b.tolist() for b in DataLoader(range(50), batch_size, sampler=two)], rest)
                two.set_epoch(5)
                self.assertEqual(len(list(two)), 25, "the next epoch is a whole one")

    def test_another_epoch_than_the_loaded_one_starts_at_its_beginning(self) -> None:
        sampler = data.DistributedSampler(range(50), 2, 1)
        sampler.load_state_dict({"seed": 0, "epoch": 4, "position": 25})
        sampler.set_epoch(5)
        self.assertEqual(len(list(sampler)), 25)

    def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(self) -> None:
        sampler = data.DistributedSampler(range(50), 2, 1)
        before = sampler.state_dict()
        for position in (-1, 26):
            with self.assertRaisesRegex(ValueError, f"position should be in .0, 25.*got {position}"):
                sampler.load_state_dict({"seed": 1, "epoch": 4, "position": position})
        with self.assertRaises(KeyError):
            sampler.load_state_dict({"seed": 1, "epoch": 4})
        self.assertEqual(sampler.state_dict(), before)

    def test_few_examples_for_many_ranks_are_repeated(self) -> None:
        shares = [list(data.DistributedSampler(range(2), 5, r, shuffle=False)) for r in range(5)]
        self.assertEqual(shares, [[0], [1], [0], [1], [0]])

    def test_a_batch_size_that_is_no_positive_integer_is_a_value_error(self) -> None:
        for size in (64 / 1.0, 0, -1, True):
            text = f"batch_size should be a positive integer value, but got batch_size={size}"
            with self.assertRaisesRegex(ValueError, text):
                DataLoader(Numbers(), batch_size=size)


class Arguments(unittest.TestCase):
    def test_arguments_that_exclude_each_other_are_refused(self) -> None:
        for kwargs in (
            {"shuffle": True, "sampler": [1]},
            {"batch_sampler": [[1]], "batch_size": 2},
            {"batch_size": None, "drop_last": True},
            {"num_workers": -1},
            {"timeout": -1},
            {"prefetch_factor": 2},
            {"persistent_workers": True},
            {"multiprocessing_context": "fork"},
            {"multiprocessing_context": "thread", "num_workers": 1},
        ):
            with self.assertRaises(ValueError, msg=str(kwargs)):
                DataLoader(Numbers(), **kwargs)
        for kwargs in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
            with self.assertRaisesRegex(ValueError, "IterableDataset"):
                DataLoader(Stream(), **kwargs)

    def test_what_the_order_is_made_of_stays(self) -> None:
        loader = DataLoader(Numbers(), batch_size=3)
        with self.assertRaisesRegex(ValueError, "batch_size attribute should not be set"):
            loader.batch_size = 4

    def test_length_counts_batches(self) -> None:
        self.assertEqual(len(DataLoader(Numbers(10), batch_size=4)), 3)
        self.assertEqual(len(DataLoader(Numbers(10), batch_size=4, drop_last=True)), 2)
        self.assertEqual(len(DataLoader(Stream(length=10), batch_size=4)), 3)
        self.assertEqual(len(DataLoader(Numbers(10), batch_size=None)), 10)


class Loading(unittest.TestCase):
    def test_every_number_of_workers_gives_the_same_batches(self) -> None:
        for workers, context in ((0, None), (1, "fork"), (3, "fork"), (2, "spawn")):
            loader = DataLoader(Numbers(), batch_size=7, num_workers=workers, multiprocessing_context=context)
            for epoch in range(2 if context != "spawn" else 1):
                batches = list(loader)
                self.assertEqual([len(b[1]) for b in batches], [7] * 5 + [5])
                self.assertEqual([int(i) for b in batches for i in b[1]], list(range(40)))
                self.assertEqual([int(v) for b in batches for v in b[0][:, 2]], list(range(40)))
                self.assertEqual([t for b in batches for t in b[2]], [str(i) for i in range(40)])

    def test_the_order_depends_on_the_seed_only(self) -> None:
        orders = []
        for workers in (0, 1, 3):
            generator = athanor.Generator()
            generator.manual_seed(3)
            loader = DataLoader(Numbers(), batch_size=7, shuffle=True, num_workers=workers, generator=generator)
            orders.append([indices(loader), indices(loader)])
        self.assertEqual(orders[0], orders[1])
        self.assertEqual(orders[0], orders[2])
        self.assertNotEqual(orders[0][0], orders[0][1])

    def test_large_batches_are_mapped_and_can_be_kept_and_written(self) -> None:
        loader = DataLoader(Numbers(12, width=300_000), batch_size=2, num_workers=2)
        open_before = len(os.listdir("/proc/self/fd"))
        batches = [b[0] for b in loader]
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), open_before + 2)
        gc.collect()
        for i, b in enumerate(batches):
            self.assertEqual(b[0, 0].item(), 2 * i)
            b.add_(1)
            self.assertEqual(b[1, -1].item(), 2 * i + 2)

    def test_numpy_arrays_and_tensors_that_want_gradients_arrive_as_such(self) -> None:
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        examples = [(numpy.arange(4000.0).reshape(2, 2000), athanor.ones(2).requires_grad_())]
        for array, wanted in DataLoader(examples, batch_size=None, num_workers=1, collate_fn=identity):
            self.assertIsInstance(array, numpy.ndarray)
            self.assertEqual(array[1, 0], 2000.0)
            array[0, 0] = 1.0
            self.assertTrue(wanted.requires_grad and wanted.is_leaf)

    def test_streams_end_when_all_workers_have_ended(self) -> None:
        for workers in (0, 2, 3, 5):
            loader = DataLoader(Stream(23), batch_size=4, num_workers=workers)
            self.assertEqual(sorted(int(i) for b in loader for i in b), list(range(23)))
        # Every worker leaves out what does not fill a batch of its own.
        full = DataLoader(Stream(23), batch_size=4, num_workers=2, drop_last=True)
        self.assertEqual(sorted(int(i) for b in full for i in b), sorted([*range(0, 23, 2), *range(1, 16, 2)]))

    def test_a_stream_longer_than_it_said_warns(self) -> None:
        for workers in (0, 2):
            for persistent in {False, workers > 0}:
                loader = DataLoader(Stream(9, length=2), batch_size=None, num_workers=workers,
                                    persistent_workers=persistent)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    self.assertEqual(sum(1 for _ in loader), 9)  # nobody asked how long it is
                self.assertEqual(len(loader), 2)
                with self.assertWarnsRegex(UserWarning, "was reported to be 2"):
                    list(loader)

    def test_workers_draw_different_numbers_that_depend_on_the_seed_only(self) -> None:
        def draw() -> list:
            athanor.manual_seed(7)
            loader = DataLoader(Draws(), batch_size=None, num_workers=2)
            return [(float(a), b, w) for a, b, w in loader]

        first, second = draw(), draw()
        self.assertEqual(first, second)
        self.assertEqual(len({a for a, _, _ in first}), 8)
        self.assertEqual([w for _, _, w in first], [0, 1] * 4)

    def test_the_init_function_sees_its_workers_dataset(self) -> None:
        loader = DataLoader(SeesInit(), batch_size=None, num_workers=2, worker_init_fn=mark_worker)
        self.assertEqual(list(loader), [1000, 1001, 1000, 1001])
        self.assertIsNone(data.get_worker_info())

    def test_forked_workers_may_use_threads_after_the_program_did(self) -> None:
        before = athanor.get_num_threads()
        self.addCleanup(athanor.set_num_threads, before)
        athanor.set_num_threads(2)
        athanor.ones(600, 600) @ athanor.ones(600, 600)
        loader = DataLoader(Products(2), batch_size=2, num_workers=2, timeout=120, multiprocessing_context="fork")
        self.assertEqual([b.tolist() for b in loader], [[160000] * 2] * 2)

    def test_persistent_workers_go_on_with_the_next_epoch(self) -> None:
        loader = DataLoader(Numbers(), batch_size=7, num_workers=2, persistent_workers=True)
        self.assertEqual(indices(loader), list(range(40)))
        pids = {p.pid for p in multiprocessing.active_children()}
        for _ in loader:
            break  # batches that nobody took are dropped
        self.assertEqual(indices(loader), list(range(40)))
        self.assertEqual({p.pid for p in multiprocessing.active_children()}, pids)
        stream = DataLoader(Stream(), batch_size=4, num_workers=2, persistent_workers=True)
        for _ in range(2):
            self.assertEqual(sorted(int(i) for b in stream for i in b), list(range(23)))

    def test_batches_out_of_order_are_all_there(self) -> None:
        loader = DataLoader(Numbers(), batch_size=3, num_workers=3, in_order=False)
        self.assertEqual(sorted(indices(loader)), list(range(40)))

    def test_datasets_of_tensors_are_gathered_as_collation_would(self) -> None:
        dataset = TensorDataset(athanor.arange(20.0).reshape(10, 2), athanor.arange(10))
        for workers in (0, 2):
            batches = list(DataLoader(dataset, batch_size=4, num_workers=workers))
            self.assertIsInstance(batches[0], list)
            self.assertEqual(batches[1][0].tolist(), dataset.tensors[0][4:8].tolist())
            self.assertEqual(batches[2][1].tolist(), [8, 9])

        for indices in ([athanor.tensor(1), athanor.tensor(2)], (1, 2), athanor.tensor([1, 2])):
            batch = next(iter(DataLoader(dataset, batch_sampler=[indices])))
            self.assertEqual(batch[1].tolist(), [1, 2])

        class Doubled(TensorDataset):
            def __getitem__(self, i):
                return tuple(2 * t for t in super().__getitem__(i))

        first = next(iter(DataLoader(Doubled(athanor.arange(10)), batch_size=4)))
        self.assertEqual(first[0].tolist(), [0, 2, 4, 6])


class Failures(unittest.TestCase):
    def test_an_error_names_worker_index_and_traceback(self) -> None:
        loader = DataLoader(Numbers(fail=17), batch_size=5, num_workers=2)
        with self.assertRaises(KeyError) as caught:
            list(loader)
        text = str(caught.exception)
        self.assertIn("Caught KeyError in DataLoader worker process 1.", text)
        self.assertIn("Dataset index: 17", text)
        self.assertIn("no such example", text)
        self.assertIn("__getitem__", text)

    def test_an_error_does_not_end_the_epoch(self) -> None:
        iterator = iter(DataLoader(Numbers(20, fail=7), batch_size=5, num_workers=1))
        next(iterator)
        with self.assertRaises(KeyError):
            next(iterator)
        self.assertEqual([int(b[1][0]) for b in iterator], [10, 15])

    def test_a_killed_worker_is_named_with_its_signal_at_once(self) -> None:
        begin = time.monotonic()
        with self.assertRaisesRegex(RuntimeError, r"worker \(pid\(s\) \d+\) exited unexpectedly: killed by signal 9"):
            list(DataLoader(Numbers(die=20), batch_size=5, num_workers=2))
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(multiprocessing.active_children(), [])

    def test_a_worker_that_takes_too_long_is_an_error(self) -> None:
        loader = DataLoader(Numbers(wait=60.0), batch_size=5, num_workers=1, timeout=0.3)
        with unittest.mock.patch("athanor.utils.data._processes._PATIENCE", 0.1):
            with self.assertRaisesRegex(RuntimeError, "timed out after 0.3 seconds"):
                list(loader)
        self.assertEqual(multiprocessing.active_children(), [])

    def test_an_init_function_that_raises_is_an_error_of_the_first_batch(self) -> None:
        with self.assertRaisesRegex(ValueError, "init does not like this"):
            list(DataLoader(Numbers(), num_workers=1, worker_init_fn=fail_in_init))

    def test_what_cannot_be_pickled_is_an_error(self) -> None:
        with self.assertRaisesRegex(Exception, "pickle|local object"):
            list(DataLoader(Unpicklable(), batch_size=None, num_workers=1))


class Endings(unittest.TestCase):
    def test_workers_end_with_their_iterator(self) -> None:
        for batch in DataLoader(Numbers(4000), batch_size=5, num_workers=2):
            break
        gc.collect()
        self.assertEqual(multiprocessing.active_children(), [])

    def test_persistent_workers_end_with_their_loader(self) -> None:
        loader = DataLoader(Numbers(), batch_size=7, num_workers=2, persistent_workers=True)
        list(loader)
        self.assertEqual(len(multiprocessing.active_children()), 2)
        gc.disable()
        self.addCleanup(gc.enable)
        del loader
        self.assertEqual(multiprocessing.active_children(), [])

    def run_script(self, script: str, **kwargs) -> subprocess.Popen:
        self.file = tempfile.NamedTemporaryFile("w", suffix=".py")
        self.addCleanup(self.file.close)
        self.file.write(textwrap.dedent(script))
        self.file.flush()
        process = subprocess.Popen(
            [sys.executable, self.file.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    SCRIPT = """
        import multiprocessing
        from athanor.utils.data import DataLoader
        class Slow:
            def __len__(self): return 1000
            def __getitem__(self, i):
                import time
                if i > 3: time.sleep(0.2)
                return i
        iterator = iter(DataLoader(Slow(), num_workers=2))
        next(iterator)
        print(*(p.pid for p in multiprocessing.active_children()), flush=True)
        for _ in iterator: pass
    """

    def assert_gone(self, pids: list) -> None:
        end = time.monotonic() + 30
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            self.assertLess(time.monotonic(), end, f"workers {pids} outlive their loader")
            time.sleep(0.02)

    def test_ctrl_c_ends_the_iteration_and_the_workers(self) -> None:
        process = self.run_script(self.SCRIPT, start_new_session=True)
        pids = process.stdout.readline().split()
        self.assertEqual(len(pids), 2)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=60)
        self.assertEqual(errors.count("KeyboardInterrupt"), 1, errors)
        self.assertNotEqual(process.returncode, 0)
        self.assert_gone(pids)

    def test_workers_do_not_outlive_a_killed_program(self) -> None:
        process = self.run_script(self.SCRIPT)
        pids = process.stdout.readline().split()
        self.assertEqual(len(pids), 2)
        process.kill()
        process.wait()
        self.assert_gone(pids)

    def test_a_script_needs_no_main_guard(self) -> None:
        process = self.run_script(
            """
            from athanor.utils.data import DataLoader
            print(sum(int(b.sum()) for b in DataLoader(range(100), batch_size=9, num_workers=2)))
            """
        )
        out, errors = process.communicate(timeout=60)
        self.assertEqual((out, process.returncode), ("4950\n", 0), errors)


if __name__ == "__main__":
    unittest.main()
