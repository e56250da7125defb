"""Document 001 (writing distributed applications): its code with the import changed and its slips mended; what is mended
stands in docs/documents.md."""
import contextlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from math import ceil
from random import Random

import athanor as torch
import athanor.distributed as dist
import athanor.nn as nn
import athanor.nn.functional as F
import athanor.optim as optim
import ranks
from athanor.multiprocessing import Process
from athanor.vision import datasets, transforms

th = torch


def printed(fn, *args):
    """What a function prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        fn(*args)
    return out.getvalue()


class Template(unittest.TestCase):
    def test_processes_that_meet_by_the_environment(self):
        # run.py of the document, forked after import, on a free port.
        port = ranks.free_port()
        with tempfile.TemporaryDirectory() as folder:

            def run(rank, size):
                with open(os.path.join(folder, str(rank)), "w") as file:
                    file.write(f"{dist.get_rank()} of {dist.get_world_size()} by {dist.get_backend()}")

            def init_processes(rank, size, fn, backend="tcp"):
                """ Initialize the distributed environment. """
                os.environ["MASTER_ADDR"] = "127.0.0.1"
                os.environ["MASTER_PORT"] = str(port)
                dist.init_process_group(backend, rank=rank, world_size=size)
                fn(rank, size)

            size = 2
            processes = []
            for rank in range(size):
                p = Process(target=init_processes, args=(rank, size, run))
                p.start()
                processes.append(p)
            for p in processes:
                p.join(60)
            self.assertEqual([p.exitcode for p in processes], [0, 0])
            said = []
            for r in range(2):
                with open(os.path.join(folder, str(r))) as file:
                    said.append(file.read())
            self.assertEqual(said, ["0 of 2 by tcp", "1 of 2 by tcp"])


class PointToPoint(unittest.TestCase):
    def test_blocking(self):
        def run(rank, size):
            tensor = torch.zeros(1)
            if rank == 0:
                tensor += 1
                # Send the tensor to process 1
                dist.send(tensor=tensor, dst=1)
            else:
                # Receive tensor from process 0
                dist.recv(tensor=tensor, src=0)
            print('Rank ', rank, ' has data ', tensor[0])

        self.assertEqual(ranks.run(lambda rank, size: printed(run, rank, size)),
                         ["Rank  0  has data  tensor(1.)\n", "Rank  1  has data  tensor(1.)\n"])

    def test_non_blocking(self):
        def run(rank, size):
            tensor = torch.zeros(1)
            req = None
            if rank == 0:
                tensor += 1
                # Send the tensor to process 1
                req = dist.isend(tensor=tensor, dst=1)
                print('Rank 0 started sending')
            else:
                # Receive tensor from process 0
                req = dist.irecv(tensor=tensor, src=0)
                print('Rank 1 started receiving')
            req.wait()
            print('Rank ', rank, ' has data ', tensor[0])

        self.assertEqual(ranks.run(lambda rank, size: printed(run, rank, size)), [
            "Rank 0 started sending\nRank  0  has data  tensor(1.)\n",
            "Rank 1 started receiving\nRank  1  has data  tensor(1.)\n"])

    def test_with_a_third_rank_the_one_nobody_sends_to_is_told_so(self):
        def run(rank, size):
            tensor = torch.zeros(1)
            try:
                if rank == 0:
                    dist.send(tensor=tensor, dst=1)
                else:
                    dist.recv(tensor=tensor, src=0)
            except dist.DistError as error:
                return str(error)

        results = ranks.run(run, 3)
        self.assertEqual(results[:2], [None, None])
        self.assertIn("rank 0", results[2])


class Collectives(unittest.TestCase):
    def test_all_reduce(self):
        def run(rank, size):
            """ Simple point-to-point communication. """
            group = dist.new_group([0, 1])
            tensor = torch.ones(1)
            dist.all_reduce(tensor, op=dist.reduce_op.SUM, group=group)
            print('Rank ', rank, ' has data ', tensor[0])

        self.assertEqual(ranks.run(lambda rank, size: printed(run, rank, size)),
                         [f"Rank  {rank}  has data  tensor(2.)\n" for rank in range(2)])

    def test_the_listed_forms(self):
        def run(rank, size):
            group = dist.new_group(list(range(size)))
            values = []
            for op in (dist.reduce_op.SUM, dist.reduce_op.PRODUCT, dist.reduce_op.MAX, dist.reduce_op.MIN):
                t = torch.tensor([rank + 2.0])
                dist.all_reduce(t, op, group)
                values.append(t.item())
            t = torch.tensor([float(rank)])
            dist.broadcast(t, 1, group)
            dist.reduce(t, 0, dist.reduce_op.SUM, group)
            part = torch.zeros(1)
            dist.scatter(part, 0, [torch.tensor([5.0]), torch.tensor([6.0])] if rank == 0 else [], group)
            got = [torch.zeros(1), torch.zeros(1)]
            dist.gather(part, 0, got if rank == 0 else [], group)
            every = [torch.zeros(1), torch.zeros(1)]
            dist.all_gather(every, part, group)
            dist.barrier(group)
            return values, t.item(), part.item(), [g.item() for g in got], [e.item() for e in every]

        first, second = ranks.run(run)
        self.assertEqual(first, ([5.0, 6.0, 3.0, 2.0], 2.0, 5.0, [5.0, 6.0], [5.0, 6.0]))
        self.assertEqual(second[0], first[0])
        self.assertEqual(second[2:], (6.0, [0.0, 0.0], [5.0, 6.0]))


# Dataset partitioning helper
class Partition(object):
    def __init__(self, data, index):
        self.data = data
        self.index = index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        data_idx = self.index[index]
        return self.data[data_idx]


class DataPartitioner(object):
    def __init__(self, data, sizes=[0.7, 0.2, 0.1], seed=1234):
        self.data = data
        self.partitions = []
        rng = Random()
        rng.seed(seed)
        data_len = len(data)
        indexes = [x for x in range(0, data_len)]
        rng.shuffle(indexes)

        for frac in sizes:
            part_len = int(frac * data_len)
            self.partitions.append(indexes[0:part_len])
            indexes = indexes[part_len:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


def images(root, count=256):
    """MNIST's files with few images, each class a bar in a row of its own."""
    import struct

    raw = os.path.join(root, "MNIST", "raw")
    os.makedirs(raw)
    for name in ("train", "t10k"):
        labels = bytes(i % 10 for i in range(count))
        pixels = bytearray(count * 784)
        for i, label in enumerate(labels):
            start = i * 784 + 28 * (2 * label + 4)
            pixels[start : start + 28] = b"\xff" * 28
        with open(os.path.join(raw, f"{name}-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        with open(os.path.join(raw, f"{name}-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 2049, count) + labels)


def partition_dataset(root, whole=True):
    dataset = datasets.MNIST(root, train=True, download=True,
                             transform=transforms.Compose([
                                 transforms.ToTensor(),
                                 transforms.Normalize((0.1307,), (0.3081,))
                             ]))
    size = dist.get_world_size()
    bsz = 128 / float(size)
    if whole:
        bsz = int(bsz)  # mended: the document's is a float
    partition_sizes = [1.0 / size for _ in range(size)]
    partition = DataPartitioner(dataset, partition_sizes)
    partition = partition.use(dist.get_rank())
    train_set = torch.utils.data.DataLoader(partition, batch_size=bsz, shuffle=True)
    return train_set, bsz


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 320)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, training=self.training)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.reduce_op.SUM)
        param.grad.data /= size


def allreduce_of_the_document(send, recv):
    rank = dist.get_rank()
    size = dist.get_world_size()
    send_buff = th.zeros(send.size())
    recv_buff = th.zeros(send.size())
    accum = th.zeros(send.size())
    accum[:] = send[:]

    left = ((rank - 1) + size) % size
    right = (rank + 1) % size

    for i in range(size - 1):
        if i % 2 == 0:
            # Send send_buff
            send_req = dist.isend(send_buff, right)
            dist.recv(recv_buff, left)
            accum[:] += recv[:]
        else:
            # Send recv_buff
            send_req = dist.isend(recv_buff, right)
            dist.recv(send_buff, left)
            accum[:] += send[:]
        send_req.wait()
    recv[:] = accum[:]


def allreduce(send, recv):
    """The same mended: what is sent begins as the rank's own, and what came is what is added."""
    rank = dist.get_rank()
    size = dist.get_world_size()
    send_buff = send.clone()
    recv_buff = th.zeros(send.size())
    accum = send.clone()

    left = ((rank - 1) + size) % size
    right = (rank + 1) % size

    for i in range(size - 1):
        if i % 2 == 0:
            send_req = dist.isend(send_buff, right)
            dist.recv(recv_buff, left)
            accum[:] += recv_buff[:]
        else:
            send_req = dist.isend(recv_buff, right)
            dist.recv(send_buff, left)
            accum[:] += send_buff[:]
        send_req.wait()
    recv[:] = accum[:]


class Training(unittest.TestCase):
    def test_the_parts_of_a_dataset(self):
        p = DataPartitioner(list(range(100)))
        self.assertEqual([len(p.use(i)) for i in range(3)], [70, 20, 10])
        self.assertEqual(sorted(x for i in range(3) for x in p.use(i)), list(range(100)))

    def test_a_batch_size_that_is_a_float_is_refused(self):
        def body(rank, size, root):
            try:
                partition_dataset(root, whole=False)
            except (ValueError, TypeError) as error:
                return type(error).__name__, "batch_size" in str(error)

        with tempfile.TemporaryDirectory() as root:
            images(root, 16)
            self.assertEqual(ranks.run(body, args=(root,)), [("ValueError", True)] * 2)

    def test_distributed_synchronous_sgd(self):
        def run(rank, size, root):
            torch.manual_seed(1234)
            train_set, bsz = partition_dataset(root)
            model = Net()
            optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)

            num_batches = ceil(len(train_set.dataset) / float(bsz))
            losses = []
            for epoch in range(3):
                epoch_loss = 0.0
                for data, target in train_set:
                    optimizer.zero_grad()
                    output = model(data)
                    loss = F.nll_loss(output, target)
                    epoch_loss += loss.item()
                    loss.backward()
                    average_gradients(model)
                    optimizer.step()
                losses.append(epoch_loss / num_batches)
            return num_batches, losses, [p.sum().item() for p in model.parameters()]

        with tempfile.TemporaryDirectory() as root:
            images(root)
            first, second = ranks.run(run, args=(root,))
        self.assertEqual(first[0], 2)
        self.assertEqual(first[2], second[2])
        self.assertLess(first[1][-1], first[1][0])
        self.assertLess(abs(first[1][0] - 2.3), 0.2)

    def test_the_ring_all_reduce(self):
        def body(rank, size, function):
            send, recv = torch.tensor([rank + 1.0, 10.0]), torch.zeros(2)
            function(send, recv)
            return recv.tolist()

        for size in (2, 3, 4):
            total = [size * (size + 1) / 2, 10.0 * size]
            self.assertEqual(ranks.run(body, size, args=(allreduce,)), [total] * size)
        # As the document has it, a rank never adds what it received: with three ranks each gets twice its own value.
        self.assertEqual(ranks.run(body, 3, args=(allreduce_of_the_document,)),
                         [[2 * (rank + 1.0), 20.0] for rank in range(3)])


def total(rank, size):
    t = torch.ones(1)
    dist.all_reduce(t)
    dist.destroy_process_group()
    return t.item()


class Backends(unittest.TestCase):
    def test_gloo(self):
        if not dist.is_gloo_available():
            self.skipTest("the plug-in for Gloo was not built")

        def body(rank, size, folder):
            dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
            return total(rank, size)

        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ranks.run(body, args=(folder,), setup=False), [2.0] * 2)

    def test_a_rank_per_device(self):
        out = ranks.run_program("""
import athanor as torch
import athanor.distributed as dist
from athanor import nn
from athanor.multiprocessing import Process
import os, sys
def run(rank, size):
    torch.manual_seed(1234)
    device = torch.device("cuda:{}".format(rank))
    model = nn.Linear(4, 2).to(device)
    data, target = torch.ones(3, 4) * rank, torch.zeros(3, 2)
    data, target = data.to(device), target.to(device)
    loss = nn.functional.mse_loss(model(data), target)
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.reduce_op.SUM)
        param.grad.data /= float(size)
    with open(str(rank), "w") as f:
        f.write("%s %.6f" % (model.weight.device, model.weight.grad.sum().item()))
def init_processes(rank, size, fn, backend='tcp'):
    os.environ['MASTER_ADDR'] = '127.0.0.1'
    os.environ['MASTER_PORT'] = sys.argv[1]
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)
if __name__ == "__main__":
    processes = []
    for rank in range(2):
        p = Process(target=init_processes, args=(rank, 2, run))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
    a, b = open("0").read().split(), open("1").read().split()
    print(a[0], b[0], a[1] == b[1], float(a[1]) != 0)
""", str(ranks.free_port()), devices=2)
        self.assertEqual(out, "cuda:0 cuda:1 True True\n")

    def test_mpi(self):
        if not dist.is_mpi_available() or not shutil.which("mpirun"):
            self.skipTest("the plug-in for MPI was not built, or there is no mpirun")
        program = """
import athanor as torch
import athanor.distributed as dist
def run(rank, size):
    t = torch.ones(1)
    dist.all_reduce(t)
    print(f"total {t.item()}\\n", end="", flush=True)  # in one piece: mpirun mixes what ranks write
def init_processes(rank, size, fn, backend='tcp'):
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(dist.get_rank(), dist.get_world_size())
init_processes(0, 0, run, backend='mpi')
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "myscript.py")
            with open(path, "w") as file:
                file.write(program)
            done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, path],
                                  capture_output=True, text=True, timeout=120, env=ranks.package_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n")), ["", "total 2.0", "total 2.0"])


class WaysToMeet(unittest.TestCase):
    def test_a_shared_file(self):
        def body(rank, size, folder):
            dist.init_process_group(init_method=f"file://{folder}/sharedfile", world_size=4, group_name="mygroup")
            return total(rank, size)

        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ranks.run(body, 4, args=(folder,), setup=False), [4.0] * 4)

    def test_tcp(self):
        def body(rank, size, port):
            dist.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
            return total(rank, size)

        self.assertEqual(ranks.run(body, 4, args=(ranks.free_port(),), setup=False), [4.0] * 4)

    def test_multicast(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(0.5)
            try:
                member = socket.inet_aton("239.7.8.9") + socket.inet_aton("0.0.0.0")
                probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
                probe.bind(("", 0))
                probe.sendto(b"x", ("239.7.8.9", probe.getsockname()[1]))
                probe.recv(1)
            except OSError as error:
                self.skipTest(f"this network does not carry multicast: {error}")

        def body(rank, size, port):
            # The document's address is of IPv6; any group does.
            dist.init_process_group(init_method=f"tcp://239.7.8.9:{port}", world_size=4, group_name="mygroup")
            return total(rank, size)

        self.assertEqual(ranks.run(body, 4, args=(ranks.free_port(),), setup=False), [4.0] * 4)


if __name__ == "__main__":
    unittest.main()
