"""The package in a process: what importing it loads, forks after work on several threads, Ctrl-C."""
import unittest

import ranks

# What `import athanor` is not to load: slow, and not needed by every program.
SLOW = ("argparse", "asyncio", "concurrent.futures", "ctypes", "dataclasses", "importlib.metadata", "inspect", "json",
        "logging", "multiprocessing", "numpy", "pickle", "PIL", "queue", "random", "socket", "subprocess", "tempfile",
        "threading", "tokenize", "unittest", "urllib", "zipfile")


class Import(unittest.TestCase):
    def loaded_by(self, statement):
        return ranks.run_program(f"""
import sys
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before))
""").split()

    def test_loads_nothing_that_is_slow(self):
        loaded = self.loaded_by("import athanor")
        self.assertIn("athanor._C", loaded)
        self.assertEqual([m for m in loaded if m in SLOW], [])
        self.assertEqual([m for m in loaded if m.startswith(("athanor.nn", "athanor.optim", "athanor.distributed",
                                                             "athanor.utils", "athanor.vision"))], [])

    def test_a_program_that_trains_loads_no_numpy_and_no_processes(self):
        loaded = self.loaded_by("""
import athanor as torch
net = torch.nn.Linear(2, 1)
torch.optim.SGD(net.parameters(), lr=0.1).step()
net(torch.ones(1, 2)).sum().backward()
""")
        self.assertIn("athanor.optim.sgd", loaded)
        self.assertEqual([m for m in loaded if m in ("numpy", "multiprocessing", "subprocess", "socket", "unittest")], [])


class Variables(unittest.TestCase):
    def test_winograd_may_be_switched_off(self):
        # It spreads a NaN over its tile, a sum over the taps of one output does not.
        nans = """
import athanor as torch
x = torch.ones(1, 16, 14, 14)
x[0, 3, 6, 6] = float("nan")
print(torch.conv2d(x, torch.ones(16, 16, 3, 3), padding=1).isnan().sum().item())
"""
        self.assertEqual(ranks.run_program(nans, ATHANOR_WINOGRAD="0"), f"{16 * 9}\n")
        self.assertGreater(int(ranks.run_program(nans, ATHANOR_WINOGRAD="1")), 16 * 9)


class InterpreterLock(unittest.TestCase):
    def test_is_given_up_by_ops_that_make_much_of_little(self):
        import array
        import sys
        import threading
        import time

        import athanor as torch

        many, row = array.array("f", bytes(4_000_000)), torch.rand(2000)
        column, places = row.view(-1, 1), torch.zeros(2000, dtype=torch.int64)
        ops = {
            "randperm": lambda: torch.randperm(200_000),
            "arange": lambda: torch.arange(2_000_000),
            "eye": lambda: torch.eye(2000),
            "an operator that broadcasts": lambda: row * column,
            "a function that broadcasts": lambda: torch.where(column > 0.5, column, row),
            "outer": lambda: torch.outer(row, row),
            "one_hot": lambda: torch.nn.functional.one_hot(places, 2000),
            "pad": lambda: torch.nn.functional.pad(row, (500_000, 500_000)),
            "a copy of a buffer": lambda: torch.tensor(many),
        }
        ran, done = 0, False

        def other():
            nonlocal ran
            while not done:
                ran += 1
                time.sleep(0)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # nobody is made to give the lock up
        thread = threading.Thread(target=other)
        thread.start()
        try:
            for name, op in ops.items():
                before = ran
                for _ in range(400):
                    op()
                    if ran != before:
                        break
                self.assertNotEqual(ran, before, f"{name} kept the lock")
        finally:
            done = True
            sys.setswitchinterval(interval)
            thread.join()


FORK = """
import os, signal, sys, threading
import athanor as torch
from athanor import nn

torch.set_num_threads(3)
torch.manual_seed(0)
a = torch.randn(200, 200)
product = a @ a
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
images, labels = torch.randn(16, 1, 8, 8), torch.randint(3, (16,))

def step():
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()

begin = {k: v.clone() for k, v in net.state_dict().items()}
expected = [step(), step()]
net.load_state_dict(begin)

def child():
    signal.alarm(60)
    net.load_state_dict(begin)
    assert torch.allclose(a @ a, product, atol=1e-4)
    assert all(abs(x - y) < 1e-5 for x, y in zip([step(), step()], expected))
    threads = [threading.Thread(target=lambda: a @ a) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

def forked():
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)      # runs what is registered for the exit
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


class Fork(unittest.TestCase):
    def test_a_child_computes_trains_and_exits_cleanly(self):
        out = ranks.run_program(FORK + """
print([forked() for _ in range(3)])
assert torch.allclose(a @ a, product, atol=1e-4)
print(abs(step() - expected[0]) < 1e-5)
""")
        self.assertEqual(out, "[0, 0, 0]\nTrue\n")

    def test_a_child_of_a_program_with_live_threads(self):
        out = ranks.run_program(FORK + """
stop, failed = threading.Event(), []

def work():
    try:
        x = torch.randn(300, 300, requires_grad=True)
        while not stop.is_set():
            (x @ x).sum().backward()
            x.grad = None
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads:
    t.start()
print([forked() for _ in range(8)])
stop.set()
for t in threads:
    t.join()
print(failed, abs(step() - expected[0]) < 1e-5)
""")
        self.assertEqual(out, "[0, 0, 0, 0, 0, 0, 0, 0]\n[] True\n")

    def test_a_child_of_a_thread_that_is_not_the_first(self):
        out = ranks.run_program(FORK + """
codes = []
thread = threading.Thread(target=lambda: codes.append(forked()))
thread.start()
thread.join()
print(codes)
""")
        self.assertEqual(out, "[0]\n")

    def test_a_child_of_a_child(self):
        out = ranks.run_program(FORK + """
def child_of_child(inner=child):
    inner()
    pid = os.fork()
    if pid == 0:
        inner()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
child = child_of_child
print(forked())
""")
        self.assertEqual(out, "0\n")


INTERRUPT = """
import os, signal
import athanor as torch
from athanor import nn
from athanor.utils.data import DataLoader, Dataset

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
"""


EXIT = """
import threading
import athanor as torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * sum(2 for _ in range(200)) / 200

def work(kind):
    x = torch.randn(300, 300, requires_grad=True)
    x.register_hook(lambda g: g * 1)
    while True:
        if kind == "ops":
            x.detach() @ x.detach()
        elif kind == "small ops":
            torch.ones(3) + 1
        elif kind == "loader":
            for _ in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 9)), 8):
                pass
        else:
            Twice.apply(x).sum().backward()

for kind in KINDS:
    threading.Thread(target=work, args=(kind,), daemon=True).start()
x = torch.randn(300, 300)
for _ in range(3):
    x @ x
print("end")
"""


class Exit(unittest.TestCase):
    def test_threads_that_still_compute_end_with_the_program(self):
        # Each run ends at another place; what asks for the interpreter lock then is not to unwind through C++.
        for kinds in (["ops"], ["small ops", "ops"], ["backward", "backward"], ["loader", "backward", "ops"]):
            for _ in range(3):
                self.assertEqual(ranks.run_program(f"KINDS = {kinds!r}\n" + EXIT).strip(), "end")


class CtrlC(unittest.TestCase):
    def test_in_a_loader_without_workers(self):
        out = ranks.run_program(INTERRUPT + """
class Data(Dataset):
    armed = True
    def __len__(self):
        return 8
    def __getitem__(self, i):
        if i == 5 and self.armed:
            interrupt()
        return torch.tensor(i)

data, seen = Data(), []
loader = DataLoader(data, batch_size=2)
try:
    for batch in loader:
        seen += batch.tolist()
except KeyboardInterrupt:
    print("interrupted", seen)
Data.armed = False
print([b.tolist() for b in loader])
""")
        self.assertEqual(out, "interrupted [0, 1, 2, 3]\n[[0, 1], [2, 3], [4, 5], [6, 7]]\n")

    def test_while_a_loader_waits_for_its_workers(self):
        out = ranks.run_program(INTERRUPT + """
import gc, multiprocessing, threading
parent = os.getpid()

class Data(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        if i == 5:
            os.kill(parent, signal.SIGINT)
            threading.Event().wait()      # for ever: the batch never comes
        return torch.tensor(i)

try:
    for batch in DataLoader(Data(), batch_size=2, num_workers=2):
        pass
except KeyboardInterrupt:
    print("interrupted")
gc.collect()
print(multiprocessing.active_children())
""", timeout=60)
        self.assertEqual(out, "interrupted\n[]\n")

    def test_in_a_backward(self):
        out = ranks.run_program(INTERRUPT + """
class Twice(torch.autograd.Function):
    armed = True
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        if Twice.armed:
            interrupt()
            for _ in range(1000):     # the handler runs between two steps of the interpreter
                pass
        return g * 2

net = nn.Linear(3, 1, bias=False)
try:
    Twice.apply(net(torch.ones(2, 3))).sum().backward()
except KeyboardInterrupt:
    print("interrupted", net.weight.grad)
Twice.armed = False
Twice.apply(net(torch.ones(2, 3))).sum().backward()
print(net.weight.grad.tolist())
""")
        self.assertEqual(out, "interrupted None\n[[4.0, 4.0, 4.0]]\n")

    def test_in_a_hook_of_a_backward(self):
        out = ranks.run_program(INTERRUPT + """
def hook(grad):
    interrupt()
    for _ in range(1000):
        pass

x = torch.ones(3, requires_grad=True)
y = x * 2
handle = y.register_hook(hook)
try:
    (y * y).sum().backward()
except KeyboardInterrupt:
    print("interrupted", x.grad)
handle.remove()
y = x * 2
(y * y).sum().backward()
print(x.grad.tolist())
""")
        self.assertEqual(out, "interrupted None\n[8.0, 8.0, 8.0]\n")

    def test_while_a_device_works(self):
        """The wait for a queue ends when the queue is done; Ctrl-C comes out then, and the device goes on working."""
        out = ranks.run_program(INTERRUPT + """
x = torch.randn(400, 400, device="cuda")
signal.setitimer(signal.ITIMER_REAL, 0.02)
signal.signal(signal.SIGALRM, signal.default_int_handler)
count = 0
try:
    while True:
        (x @ x).sum().item()
        count += 1
except KeyboardInterrupt:
    print("interrupted")
print(bool((x - x).abs().sum() == 0))
""", devices=1)
        self.assertEqual(out, "interrupted\nTrue\n")

    def test_in_a_collective(self):
        def body(rank, size):
            import signal

            import athanor as torch
            import athanor.distributed as dist

            if rank == 1:  # never calls it
                try:
                    dist.recv(torch.ones(1), 0)
                except dist.DistError:
                    return "the other has gone"
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                dist.all_reduce(torch.ones(5))
            except KeyboardInterrupt:
                return "interrupted"

        self.assertEqual(ranks.run(body), ["interrupted", "the other has gone"])


if __name__ == "__main__":
    unittest.main()
