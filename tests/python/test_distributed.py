"""athanor.distributed: collectives, messages, objects, groups, stores, errors, Ctrl-C."""
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

import athanor as torch
import athanor.distributed as dist
import ranks


def collectives(rank, size):
    t = torch.full((3,), float(rank + 1))
    dist.all_reduce(t)
    m = torch.tensor([rank, -rank])
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    average = torch.full((2,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    b = torch.tensor([rank * 10.0])
    dist.broadcast(b, 1)
    r = torch.ones(2) * (rank + 1)
    dist.reduce(r, dst=0, op=dist.ReduceOp.PRODUCT)
    gathered = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(gathered, torch.tensor([rank, rank + 1]))
    at_one = [torch.zeros(1) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.tensor([float(rank)]), at_one, dst=1)
    part = torch.zeros(2)
    dist.scatter(part, [torch.full((2,), float(i)) for i in range(size)] if rank == 0 else None, src=0)
    rs = torch.zeros(2)
    dist.reduce_scatter(rs, [torch.full((2,), float(10 * i + rank)) for i in range(size)])
    out = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(out, [torch.tensor([10.0 * rank + i]) for i in range(size)])
    single = torch.zeros(size)
    dist.all_to_all_single(single, torch.arange(size) * 1.0 + 10 * rank)
    uneven = torch.zeros(sum(range(1, size + 1)) if rank == 0 else 0)
    sizes = [rank + 1] + [0] * (size - 1)
    dist.all_to_all_single(uneven, torch.full((rank + 1,), float(rank)),
                           [i + 1 for i in range(size)] if rank == 0 else [0] * size, sizes)
    into = torch.zeros(size, 2)
    dist.all_gather_into_tensor(into, torch.tensor([float(rank), 1.0]))
    rst = torch.zeros(1)
    dist.reduce_scatter_tensor(rst, torch.arange(size) * 1.0)
    dist.barrier()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    several = [torch.ones(2) * rank, torch.ones(3)]
    dist.all_reduce_coalesced(several)
    lists = [[torch.zeros(1), torch.zeros(2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.tensor([1.0 * rank]), torch.tensor([2.0 * rank, 3.0])])
    return {
        "all_reduce": t.tolist(), "max": m.tolist(), "avg": average.tolist(), "broadcast": b.tolist(),
        "reduce": r.tolist(), "all_gather": [g.tolist() for g in gathered],
        "gather": [g.tolist() for g in at_one] if at_one else None, "scatter": part.tolist(), "reduce_scatter": rs.tolist(),
        "all_to_all": [o.tolist() for o in out], "single": single.tolist(), "uneven": uneven.tolist(),
        "into": into.tolist(), "rst": rst.tolist(), "coalesced": [s.tolist() for s in several],
        "lists": [[t.tolist() for t in of_rank] for of_rank in lists],
    }


class Collectives(unittest.TestCase):
    def test_each_gives_what_its_name_says(self):
        for size in (2, 3):
            results = ranks.run(collectives, size)
            total = size * (size + 1) / 2
            for rank, r in enumerate(results):
                self.assertEqual(r["all_reduce"], [total] * 3)
                self.assertEqual(r["max"], [size - 1, 0])
                self.assertEqual(r["avg"], [(size - 1) / 2] * 2)
                self.assertEqual(r["broadcast"], [10.0])
                product = 2.0 if size == 2 else 6.0
                self.assertEqual(r["reduce"], [product] * 2 if rank == 0 else [rank + 1.0] * 2)
                self.assertEqual(r["all_gather"], [[i, i + 1] for i in range(size)])
                self.assertEqual(r["gather"], [[float(i)] for i in range(size)] if rank == 1 else None)
                self.assertEqual(r["scatter"], [float(rank)] * 2)
                self.assertEqual(r["reduce_scatter"], [10.0 * rank * size + sum(range(size))] * 2)
                self.assertEqual(r["all_to_all"], [[10.0 * i + rank] for i in range(size)])
                self.assertEqual(r["single"], [10.0 * i + rank for i in range(size)])
                self.assertEqual(r["uneven"], [float(i) for i in range(size) for _ in range(i + 1)] if rank == 0 else [])
                self.assertEqual(r["into"], [[float(i), 1.0] for i in range(size)])
                self.assertEqual(r["rst"], [float(rank * size)])
                self.assertEqual(r["coalesced"], [[sum(range(size))] * 2, [size] * 3])
                self.assertEqual(r["lists"], [[[1.0 * i], [2.0 * i, 3.0]] for i in range(size)])

    def test_asynchronous_calls_end_with_wait(self):
        def body(rank, size):
            t = torch.ones(4) * rank
            work = dist.all_reduce(t, async_op=True)
            work.wait()
            future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
            seen = future.then(lambda f: f.value()[0] * 2).wait()
            return t.tolist(), work.is_completed(), work.is_success(), work.exception(), seen.item()

        for result in ranks.run(body):
            self.assertEqual(result, ([1.0] * 4, True, True, None, 4.0))

    def test_strided_and_other_dtypes_take_part(self):
        def body(rank, size):
            t = torch.arange(6).view(2, 3).t() * 1.0
            dist.all_reduce(t)
            h = torch.ones(3, dtype=torch.bfloat16)
            dist.all_reduce(h)
            b = torch.tensor([rank == 0, False])
            dist.all_reduce(b, dist.ReduceOp.BOR)
            e = torch.zeros(0)
            dist.all_reduce(e)
            z = torch.tensor(1.5)
            dist.all_reduce(z)
            return t.tolist(), h.tolist(), b.tolist(), z.item()

        for result in ranks.run(body):
            self.assertEqual(result, ([[0, 6], [2, 8], [4, 10]], [2.0] * 3, [True, False], 3.0))

    def test_an_operator_of_the_program(self):
        def body(rank, size):
            t = torch.tensor([3.0, 8.0]) + rank
            dist.all_reduce(t, dist.ReduceOp.user("hypot", lambda a, b: (a * a + b * b).sqrt()))
            p = torch.ones(2)
            dist.all_reduce(p, dist.ReduceOp.premul_sum(0.5))
            return t.tolist(), p.tolist()

        for t, p in ranks.run(body):
            self.assertAlmostEqual(t[0], 5.0, places=5)
            self.assertEqual(p, [1.0, 1.0])

    def test_names_of_pytorch_0_4(self):
        def body(rank, size):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                t = torch.ones(1)
                dist.all_reduce(t, op=dist.reduce_op.SUM)
            part = torch.zeros(1)
            dist.scatter(part, 0, [torch.tensor([7.0]), torch.tensor([8.0])] if rank == 0 else [])
            got = [torch.zeros(1), torch.zeros(1)] if rank == 0 else []
            dist.gather(part, 0, got)
            return t.item(), [w.category.__name__ for w in seen], part.item(), [g.item() for g in got]

        self.assertEqual(ranks.run(body), [(2.0, ["FutureWarning"], 7.0, [7.0, 8.0]), (2.0, ["FutureWarning"], 8.0, [])])

    def test_gradients_flow_through(self):
        def body(rank, size):
            from athanor.distributed.nn import functional as f

            x = torch.tensor([1.0 + rank], requires_grad=True)
            (f.all_reduce(x * x) * (rank + 1)).sum().backward()
            y = torch.tensor([2.0], requires_grad=True)
            sum(f.all_gather(y * 3)).sum().backward()
            return x.grad.item(), y.grad.item()

        self.assertEqual(ranks.run(body), [(6.0, 6.0), (12.0, 6.0)])


class Messages(unittest.TestCase):
    def test_send_and_receive(self):
        def body(rank, size):
            t = torch.zeros(2)
            if rank == 0:
                dist.send(torch.tensor([1.0, 2.0]), dst=1)
                dist.send(torch.tensor([3.0, 4.0]), 1, tag=5)
                return None
            source = dist.recv(t)
            later = torch.zeros(2)
            work = dist.irecv(later, src=0, tag=5)
            work.wait()
            return source, t.tolist(), later.tolist(), work.source_rank()

        self.assertEqual(ranks.run(body)[1], (0, [1.0, 2.0], [3.0, 4.0], 0))

    def test_messages_in_a_batch_do_not_wait_for_each_other(self):
        def body(rank, size):
            out, back = torch.full((1000,), float(rank)), torch.zeros(1000)
            ops = [dist.P2POp(dist.isend, out, (rank + 1) % size), dist.P2POp(dist.irecv, back, (rank - 1) % size)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            return back[0].item()

        self.assertEqual(ranks.run(body, 3), [2.0, 0.0, 1.0])
        with self.assertRaisesRegex(ValueError, "Invalid ``op``"):
            dist.P2POp(dist.send, torch.zeros(1), 0)

    def test_objects(self):
        def body(rank, size):
            everything = [None] * size
            dist.all_gather_object(everything, {"rank": rank, "t": torch.tensor([rank])})
            to_all = [f"from {rank}", rank] if rank == 0 else [None, None]
            dist.broadcast_object_list(to_all, src=0)
            mine = [None]
            dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None, src=0)
            gathered = [None] * size if rank == 0 else None
            dist.gather_object(mine[0], gathered, dst=0)
            came = [None]
            if rank == 0:
                dist.send_object_list([(1, 2)], dst=1)
            else:
                came.append(dist.recv_object_list(came))
            return [(e["rank"], e["t"].item()) for e in everything], to_all, mine, gathered, came

        both = [(0, 0), (1, 1)]
        self.assertEqual(ranks.run(body), [
            (both, ["from 0", 0], ["a"], ["a", "b"], [None]), (both, ["from 0", 0], ["b"], None, [(1, 2), 0])])


class Groups(unittest.TestCase):
    def test_groups_of_some_ranks(self):
        def body(rank, size):
            first = dist.new_group([0, 1])
            t = torch.ones(1)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                dist.all_reduce(t, group=first)
            whole = torch.ones(1)
            dist.all_reduce(whole, group=dist.group.WORLD)
            mine, every = dist.new_subgroups_by_enumeration([[0, 2], [1]])
            u = torch.ones(1)
            dist.all_reduce(u, group=mine)
            return (t.item(), whole.item(), u.item(), dist.get_rank(first), dist.get_world_size(mine), len(every),
                    dist.get_process_group_ranks(mine), [str(w.message)[:17] for w in seen],
                    dist.get_backend(), dist.get_global_rank(mine, 0))

        results = ranks.run(body, 3)
        self.assertEqual(results[0], (2.0, 3.0, 2.0, 0, 2, 2, [0, 2], [], "tcp", 0))
        self.assertEqual(results[1], (2.0, 3.0, 1.0, 1, 1, 2, [1], [], "tcp", 1))
        self.assertEqual(results[2], (1.0, 3.0, 2.0, -1, 2, 2, [0, 2], ["Running all_reduc"], "tcp", 0))

    def test_a_group_again_after_the_end_of_one(self):
        def body(rank, size, folder):
            dist.destroy_process_group()
            before = dist.is_initialized()
            dist.init_process_group(init_method=f"file://{folder}/again", rank=rank, world_size=size)
            t = torch.ones(1)
            dist.all_reduce(t)
            return before, t.item()

        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ranks.run(body, args=(folder,)), [(False, 2.0)] * 2)

    def test_ways_to_meet(self):
        def body(rank, size, port, folder):
            def total():
                t = torch.ones(1)
                dist.all_reduce(t)
                dist.destroy_process_group()
                return t.item()

            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
            dist.init_process_group("tcp")
            totals = [total()]
            dist.init_process_group("tcp", init_method=f"file://{folder}/b", world_size=size, group_name="mine")
            totals.append(total())
            store = dist.FileStore(f"{folder}/c", size)
            dist.init_process_group("TCP", store=store, rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=60))
            return totals + [total()]

        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ranks.run(body, args=(ranks.free_port(), folder), setup=False), [[2.0] * 3] * 2)

    def test_without_a_group_calls_say_what_is_missing(self):
        self.assertFalse(dist.is_initialized())
        self.assertIsNone(dist.group.WORLD)
        with self.assertRaisesRegex(ValueError, "init_process_group"):
            dist.all_reduce(torch.ones(1))
        with self.assertRaisesRegex(ValueError, "init_process_group"):
            dist.get_rank()

    def test_bad_arguments_have_torchs_classes(self):
        with self.assertRaisesRegex(TypeError, "Expected parameter `tensor` of type torch.Tensor"):
            dist.all_reduce([torch.ones(1)])
        with self.assertRaisesRegex(TypeError, "tensor_list"):
            dist.all_gather(torch.ones(1), torch.ones(1))
        with self.assertRaises(ValueError):
            dist.init_process_group("no such backend", init_method="tcp://127.0.0.1:1", rank=0, world_size=1)
        with self.assertRaises(TypeError):
            dist.init_process_group("tcp", timeout="30 s", rank=0, world_size=1)

        def body(rank, size):
            seen = []
            for call in (lambda: dist.broadcast(torch.ones(1), 9), lambda: dist.send(torch.ones(1), rank),
                         lambda: dist.all_reduce(torch.ones(1), group=3), lambda: dist.new_group([0, 7])):
                try:
                    call()
                except Exception as error:
                    seen.append(type(error).__name__)
            t = torch.ones(1)
            dist.all_reduce(t)  # the group is as before
            return seen, t.item()

        self.assertEqual(ranks.run(body)[0], (["ValueError", "ValueError", "TypeError", "ValueError"], 2.0))


class Defaults(unittest.TestCase):
    def test_a_device_has_a_backend(self):
        self.assertEqual(dist.get_default_backend_for_device("cpu"), "tcp")
        self.assertEqual(dist.get_default_backend_for_device(torch.device("cuda", 1)), "nccl")
        self.assertRaises(RuntimeError, dist.get_default_backend_for_device, "meta")


class LocalRank(unittest.TestCase):
    NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")

    def local_rank(self, *fallback, **variables):
        with unittest.mock.patch.dict(os.environ, {**dict.fromkeys(self.NAMES, ""), **variables}):
            return dist.get_node_local_rank(*fallback)

    def test_it_is_what_the_launcher_says(self):
        self.assertEqual(self.local_rank(LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_RANK="2"), 1)
        self.assertEqual(self.local_rank(7, OMPI_COMM_WORLD_LOCAL_RANK="2"), 2)
        self.assertEqual(self.local_rank(MPI_LOCALRANKID="3"), 3)
        self.assertEqual(self.local_rank(SLURM_LOCALID="4", SLURM_STEP_NUM_TASKS="8"), 4)

    def test_without_a_launcher_it_is_the_fallback(self):
        self.assertEqual(self.local_rank(7, SLURM_LOCALID="0"), 7)  # a batch script is no task
        with self.assertRaisesRegex(RuntimeError, "LOCAL_RANK is not in the environment"):
            self.local_rank()
        with self.assertRaisesRegex(ValueError, "LOCAL_RANK='two'"):
            self.local_rank(LOCAL_RANK="two")


class Errors(unittest.TestCase):
    def test_classes(self):
        self.assertTrue(issubclass(dist.DistError, RuntimeError))
        for error in (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError):
            self.assertTrue(issubclass(error, dist.DistError))

    def test_different_calls_are_told_apart_with_the_programs_lines(self):
        def body(rank, size):
            try:
                if rank == 0:
                    dist.all_reduce(torch.ones(1))
                else:
                    dist.broadcast(torch.ones(1), 0)
            except dist.DistError as error:
                return str(error)

        for text in ranks.run(body):
            self.assertRegex(text, "all_reduce")
            self.assertRegex(text, "broadcast")
            self.assertRegex(text, r"test_distributed\.py:\d+")

    def test_a_rank_that_died_is_named(self):
        def body(rank, size):
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                dist.all_reduce(torch.ones(1))
            except dist.DistError as error:
                return str(error)

        with self.assertRaisesRegex(AssertionError, "rank 1 ended without a result, status -9"):
            ranks.run(body)

    def test_a_timeout_ends_the_meeting(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(dist.DistError, "1 of 2 processes came"):
                dist.init_process_group("tcp", init_method=f"file://{folder}/f", rank=0, world_size=2,
                                        timeout=datetime.timedelta(milliseconds=200))

    def _interrupted(self, body):
        """A child that runs `body`, gets SIGINT, and tells what came out and when."""
        program = f"""
import os, signal, sys, threading, time
import athanor as torch, athanor.distributed as dist
def later():
    time.sleep(0.4)
    os.kill(os.getpid(), signal.SIGINT)
{body}
threading.Thread(target=later, daemon=True).start()
begin = time.monotonic()
try:
    wait()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 20, flush=True)
"""
        done = subprocess.run([sys.executable, "-c", program], env=ranks.package_environment(), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.stdout, "interrupted True\n", done.stderr)

    def test_ctrl_c_ends_the_wait_for_a_store(self):
        self._interrupted("store = dist.HashStore()\nwait = lambda: store.get('never')")
        self._interrupted("store = dist.TCPStore('127.0.0.1', 0, is_master=True)\nwait = lambda: store.wait(['never'])")

    def test_ctrl_c_ends_the_meeting(self):
        with tempfile.TemporaryDirectory() as folder:
            self._interrupted("wait = lambda: dist.init_process_group('tcp', init_method='file://%s/f', rank=0, "
                              "world_size=2)" % folder)

    def test_ctrl_c_ends_collectives_and_messages(self):
        calls = ("dist.all_reduce(torch.ones(1))", "dist.recv(torch.ones(1), 1)",
                 "dist.all_reduce(torch.ones(1), async_op=True).wait()", "dist.irecv(torch.ones(1), 1).wait()")

        def body(rank, size, call):
            if rank == 1:
                # Is not there for the call; ends when the other says good-bye or is gone.
                try:
                    dist.recv(torch.ones(1), 0, tag=9)
                except dist.DistError:
                    pass
                return None

            def later():
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=later, daemon=True).start()
            begin = time.monotonic()
            try:
                eval(call, {"dist": dist, "torch": torch})
            except KeyboardInterrupt:
                return time.monotonic() - begin < 20
            return "went on"

        for call in calls:
            with self.subTest(call=call):
                self.assertEqual(ranks.run(body, args=(call,))[0], True)

    def test_ctrl_c_ends_the_wait_for_a_message_over_mpi(self):
        if not dist.is_mpi_available() or not shutil.which("mpirun"):
            self.skipTest("the plug-in for MPI was not built, or there is no mpirun")
        program = """
import os, signal, sys, threading, time
import athanor as torch, athanor.distributed as dist
dist.init_process_group("mpi")
def later():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
for wait in (lambda: dist.recv(torch.ones(1), 1, tag=3), lambda: dist.recv(torch.ones(1), None, tag=4),
             lambda: dist.irecv(torch.ones(1), 1, tag=5).wait()):
    if dist.get_rank() == 0:
        threading.Thread(target=later, daemon=True).start()
        begin = time.monotonic()
        try:
            wait()
            print("went on")
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begin < 20, flush=True)
    dist.barrier()
# What was given up takes nothing from later messages.
t = torch.full((2,), 7.0)
if dist.get_rank() == 0:
    t.zero_()
    dist.recv(t, 1, tag=3)
    print(t.tolist(), flush=True)
else:
    dist.send(t, 0, tag=3)
dist.destroy_process_group()
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(program)
            done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, path],
                                  capture_output=True, text=True, timeout=120, env=ranks.package_environment())
        self.assertEqual(done.stdout, "interrupted True\n" * 3 + "[7.0, 7.0]\n", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_other_threads_run_while_one_waits(self):
        store = dist.HashStore()
        thread = threading.Thread(target=lambda: store.set("key", b"value"))
        timer = threading.Timer(0.05, thread.start)
        timer.start()
        self.assertEqual(store.get("key"), b"value")
        timer.join()
        thread.join()


class Stores(unittest.TestCase):
    def check(self, store):
        store.set("a", "1")
        store.set("b", b"\x00\xff")
        self.assertEqual(store.get("a"), b"1")
        self.assertEqual(store.add("n", 3), 3)
        self.assertEqual(store.add("n", -1), 2)
        self.assertEqual(store.compare_set("a", "1", "2"), b"2")
        self.assertEqual(store.compare_set("a", "1", "3"), b"2")
        self.assertTrue(store.check(["a", "b"]))
        self.assertFalse(store.check(["a", "c"]))
        store.append("b", "z")
        self.assertEqual(store.multi_get(["a", "b"]), [b"2", b"\x00\xffz"])
        store.multi_set(["x", "y"], ["1", "2"])
        store.wait(["x", "y"], datetime.timedelta(seconds=5))
        self.assertTrue(store.delete_key("x"))
        self.assertFalse(store.delete_key("x"))
        with self.assertRaisesRegex(dist.DistStoreError, "never"):
            store.wait(["never"], datetime.timedelta(milliseconds=20))
        store.set_timeout(datetime.timedelta(milliseconds=30))
        self.assertEqual(store.timeout, datetime.timedelta(milliseconds=30))
        with self.assertRaises(dist.DistStoreError):
            store.get("never")
        with self.assertRaises(TypeError):
            store.set("a", 5)

    def test_all_kinds(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(dist.HashStore())
            self.check(dist.FileStore(os.path.join(folder, "store"), 1))
            server = dist.TCPStore("127.0.0.1", 0, 1, True)
            self.assertIsInstance(server, dist.TCPStore)
            self.assertIsInstance(server, dist.Store)
            self.check(server)
            client = dist.TCPStore("127.0.0.1", server.port, is_master=False)
            self.assertEqual(client.get("a"), b"2")
            self.check(dist.PrefixStore("sub", dist.HashStore()))
            self.assertGreater(server.num_keys(), 3)

    def test_a_port_that_is_taken(self):
        server = dist.TCPStore("127.0.0.1", 0, is_master=True)
        with self.assertRaises(dist.DistNetworkError):
            dist.TCPStore("127.0.0.1", server.port, is_master=True, timeout=datetime.timedelta(seconds=2))


if __name__ == "__main__":
    unittest.main()
