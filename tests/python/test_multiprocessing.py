"""athanor.multiprocessing: tensors between processes, spawn; jit.fork and futures."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import athanor as torch
import athanor.multiprocessing as mp
import ranks
from athanor import jit


def double(q_in, q_out, ready):
    t = q_in.get()
    t *= 2
    q_out.put(t.sum())
    q_out.put({"a": torch.arange(3), "b": [torch.zeros(0), torch.tensor(1.5, dtype=torch.float64)]})
    ready.wait(60)  # what was put is handed over by this process


def add_rank(rank, t):
    t[rank] += rank + 1


def fail(rank):
    if rank == 1:
        raise ValueError("of rank one")
    time.sleep(60)


def interrupted(rank):
    raise KeyboardInterrupt


def die(rank):
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def leave(rank):
    sys.exit(7)


def meet(rank, size):
    import athanor.distributed as dist

    dist.init_process_group("tcp", rank=rank, world_size=size)
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == size
    dist.destroy_process_group()


class Tensors(unittest.TestCase):
    def test_queues_hand_over_shared_memory(self):
        for method in ("fork", "spawn"):
            with self.subTest(method=method):
                context = mp.get_context(method)
                q_in, q_out, ready = context.Queue(), context.Queue(), context.Event()
                t = torch.arange(6).view(2, 3) * 1.0
                p = context.Process(target=double, args=(q_in, q_out, ready))
                p.start()
                q_in.put(t)
                self.assertEqual(q_out.get(timeout=60).item(), 30.0)
                self.assertEqual(t.tolist(), [[0, 2, 4], [6, 8, 10]])
                self.assertTrue(t.is_shared())
                rest = q_out.get(timeout=60)
                ready.set()
                self.assertEqual(rest["a"].tolist(), [0, 1, 2])
                self.assertEqual(rest["b"][0].shape, (0,))
                self.assertEqual((rest["b"][1].item(), rest["b"][1].dtype), (1.5, torch.float64))
                p.join(60)
                self.assertEqual(p.exitcode, 0)

    def test_memory_and_descriptors_go_with_the_tensors(self):
        count = lambda: len(os.listdir("/proc/self/fd"))
        t = torch.ones(1000).share_memory_()
        view = t[10:]
        self.assertTrue(view.is_shared())
        del t, view
        before = count()
        for _ in range(20):
            torch.ones(100000).share_memory_()
        self.assertEqual(count(), before)
        self.assertFalse(torch.ones(3).is_shared())

    def test_parameters_keep_their_class(self):
        r, w = mp.Pipe()
        p = torch.nn.Parameter(torch.ones(2))
        w.send(p)
        back = r.recv()
        self.assertIsInstance(back, torch.nn.Parameter)
        self.assertTrue(back.requires_grad)
        back.data.add_(1)
        self.assertEqual(p.tolist(), [2.0, 2.0])
        with self.assertRaisesRegex(RuntimeError, "non-leaf"):
            w.send(p * 2)

    def test_a_module_shared_with_forked_children(self):
        model = torch.nn.Linear(2, 1)
        model.share_memory()
        with torch.no_grad():
            model.weight.zero_()

        def train():
            with torch.no_grad():
                model.weight.add_(1)

        p = mp.get_context("fork").Process(target=train)
        p.start()
        p.join(60)
        self.assertEqual(p.exitcode, 0)
        self.assertEqual(model.weight.tolist(), [[1.0, 1.0]])

    def test_strategies(self):
        self.assertEqual(mp.get_all_sharing_strategies(), {"file_descriptor", "file_system"})
        mp.set_sharing_strategy("file_system")
        self.assertEqual(mp.get_sharing_strategy(), "file_system")
        mp.set_sharing_strategy("file_descriptor")
        with self.assertRaises(ValueError):
            mp.set_sharing_strategy("none")


class Spawn(unittest.TestCase):
    def test_all_processes_see_one_tensor(self):
        t = torch.zeros(3).share_memory_()
        self.assertIsNone(mp.spawn(add_rank, args=(t,), nprocs=3))
        self.assertEqual(t.tolist(), [1.0, 2.0, 3.0])

    def test_processes_meet_without_being_told_where(self):
        kept = {k: os.environ.pop(k) for k in ("MASTER_ADDR", "MASTER_PORT") if k in os.environ}
        try:
            mp.start_processes(meet, args=(2,), nprocs=2, start_method="fork")
        finally:
            os.environ.update(kept)

    def test_an_interrupt_of_one_process_alone_is_no_success(self):
        with self.assertRaisesRegex(mp.ProcessRaisedException, "KeyboardInterrupt"):
            mp.spawn(interrupted, nprocs=1)

    def test_what_one_raises_arrives_with_its_traceback_and_ends_the_others(self):
        begin = time.monotonic()
        with self.assertRaises(mp.ProcessRaisedException) as caught:
            mp.start_processes(fail, nprocs=2, start_method="fork")
        self.assertLess(time.monotonic() - begin, 40)
        self.assertIn("-- Process 1 terminated with the following error:", str(caught.exception))
        self.assertIn("ValueError: of rank one", str(caught.exception))
        self.assertIn("in fail", str(caught.exception))
        self.assertEqual(caught.exception.error_index, 1)

    def test_signals_and_statuses(self):
        with self.assertRaises(mp.ProcessExitedException) as caught:
            mp.start_processes(die, nprocs=2, start_method="fork")
        self.assertEqual(str(caught.exception), "process 0 terminated with signal SIGKILL")
        self.assertEqual((caught.exception.exit_code, caught.exception.signal_name), (-9, "SIGKILL"))
        with self.assertRaises(mp.ProcessExitedException) as caught:
            mp.start_processes(leave, nprocs=1, start_method="fork")
        self.assertEqual(str(caught.exception), "process 0 terminated with exit code 7")

    def test_a_context_to_wait_for(self):
        context = mp.start_processes(add_rank, args=(torch.zeros(2),), nprocs=2, join=False, start_method="fork")
        self.assertEqual(len(context.pids()), 2)
        while not context.join(timeout=60):
            pass
        self.assertTrue(context.join())


DEVICES = """
import athanor as torch
from athanor import jit
with torch.cuda.device(2):
    current = jit.fork(lambda: torch.ones(1, device="cuda"))
with torch.device("cuda:1"):
    default = jit.fork(lambda: torch.ones(1))
print(current.wait().device, default.wait().device, jit.fork(lambda: torch.ones(1)).wait().device)
"""


class Fork(unittest.TestCase):
    def test_results_and_gradients(self):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        left = jit.fork(lambda t, k=1: t * k, x, k=3)
        right = jit.fork(torch.exp, x)
        y = jit.wait(left) + jit.wait(right)
        y.sum().backward()
        for g, v in zip(x.grad.tolist(), x.tolist()):
            self.assertAlmostEqual(g, 3 + 2.718281828 ** v, places=4)
        self.assertTrue(left.done())
        self.assertEqual(left.wait().tolist(), [3.0, 6.0])

    def test_the_grad_mode_goes_along(self):
        x = torch.ones(1, requires_grad=True)
        with torch.no_grad():
            future = jit.fork(lambda: x * 2)
        self.assertFalse(future.wait().requires_grad)

    def test_the_devices_go_along(self):
        self.assertEqual(ranks.run_program(DEVICES, devices=3).split(), ["cuda:2", "cuda:1", "cpu"])

    def test_nested_without_deadlock(self):
        def tree(depth):
            if depth == 0:
                return 1
            children = [jit.fork(tree, depth - 1) for _ in range(3)]
            return sum(jit.wait(c) for c in children)

        self.assertEqual(tree(5), 243)

    def test_exceptions_are_carried_and_can_be_asked_for_again(self):
        def bad():
            raise KeyError("inside")

        future = jit.fork(bad)
        for _ in range(2):
            with self.assertRaisesRegex(KeyError, "inside"):
                jit.wait(future)
        with self.assertRaisesRegex(RuntimeError, "shape|size"):
            jit.wait(jit.fork(torch.mm, torch.ones(2, 3), torch.ones(2, 3)))
        with self.assertRaises(TypeError):
            jit.fork(3)

    def test_tasks_run_at_once(self):
        gate = threading.Barrier(2, timeout=60)
        futures = [jit.fork(gate.wait) for _ in range(2)] if torch._C.get_num_interop_threads() > 1 else []
        for f in futures:
            f.wait()

    def test_the_interpreter_ends_with_tasks_under_way(self):
        program = ("import athanor as torch\nfrom athanor import jit\nimport time\n"
                   "fs = [jit.fork(lambda: [torch.ones(5000).exp() for _ in range(50)]) for _ in range(20)]\n"
                   "print('end')\n")
        done = subprocess.run([sys.executable, "-c", program], env=ranks.package_environment(), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)

    def test_a_forked_process_has_tasks_of_its_own(self):
        jit.wait(jit.fork(lambda: 1))

        def body(rank, size):
            return jit.wait(jit.fork(lambda: torch.ones(10000).sum().item()))

        self.assertEqual(ranks.run(body, setup=False), [10000.0] * 2)


class Futures(unittest.TestCase):
    def test_values_callbacks_and_errors(self):
        from athanor.futures import Future, collect_all, wait_all

        f = Future()
        seen = []
        f.add_done_callback(lambda g: seen.append(g.value()))
        doubled = f.then(lambda g: g.value() * 2)
        self.assertFalse(f.done())
        with self.assertRaises(RuntimeError):
            f.value()
        f.set_result(21)
        self.assertEqual((seen, doubled.wait(), f.wait()), ([21], 42, 21))
        with self.assertRaises(RuntimeError):
            f.set_result(1)
        bad = Future()
        bad.set_exception(ValueError("no"))
        with self.assertRaisesRegex(ValueError, "no"):
            bad.wait()
        self.assertEqual([g.value() for g in collect_all([f, doubled]).wait()], [21, 42])
        self.assertEqual(wait_all([f, doubled]), [21, 42])


if __name__ == "__main__":
    unittest.main()
