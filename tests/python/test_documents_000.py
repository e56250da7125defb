"""Document 000 (PyTorch on Kubernetes): its code with the import changed."""
import os
import subprocess
import sys
import unittest

import athanor as torch
import ranks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Tensors(unittest.TestCase):
    def test_a_random_matrix(self):
        x = torch.rand(4, 3)
        self.assertRegex(str(x), r"^tensor\(\[\[0\.\d{4}, 0\.\d{4}, 0\.\d{4}\],\n( {8}\[[^\]]*\],?\n?){3}\]\)$")
        self.assertTrue(((x >= 0) & (x < 1)).all())

    def test_a_matrix_of_zeros(self):
        x = torch.zeros(4, 3, dtype=torch.long)
        self.assertEqual(str(x), "tensor([[0, 0, 0],\n        [0, 0, 0],\n        [0, 0, 0],\n        [0, 0, 0]])")
        y = torch.ones(2, 2)
        y.zero_()
        self.assertEqual(torch.zeros_like(y).tolist(), y.tolist())

    def test_a_tensor_of_data(self):
        x = torch.tensor([5.5, 3])
        self.assertEqual(str(x), "tensor([5.5000, 3.0000])")

    def test_a_tensor_made_from_another(self):
        x = torch.tensor([5.5, 3])
        x = x.new_ones(4, 3, dtype=torch.double)
        self.assertEqual(
            str(x), "tensor([[1., 1., 1.],\n        [1., 1., 1.],\n        [1., 1., 1.],\n        [1., 1., 1.]], "
            "dtype=torch.float64)")
        x = torch.randn_like(x, dtype=torch.float)
        self.assertIs(x.dtype, torch.float32)
        self.assertEqual(f"{x.size()}\n{x.shape}", "torch.Size([4, 3])\ntorch.Size([4, 3])")

    def test_addition_in_three_ways(self):
        x = torch.randn(4, 3)
        y = torch.rand(4, 3)
        first = x + y
        second = torch.add(x, y)
        y.add_(x)
        self.assertTrue(first.equal(second) and second.equal(y))

    def test_views(self):
        x = torch.randn(4, 4)
        y = x.view(16)
        z = x.view(-1, 8)
        self.assertEqual(f"{x.size()} {y.size()} {z.size()}",
                         "torch.Size([4, 4]) torch.Size([16]) torch.Size([2, 8])")


NET = """
import athanor as torch
from athanor import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        return self.fc(x)
dataloader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 3, (8,))), batch_size=4)
"""


class Devices(unittest.TestCase):
    def test_one_device(self):
        out = ranks.run_program(NET + """
model = Net()
model.cuda()
for image, label in dataloader:
    image = image.cuda()
    label = label.cuda()
    loss = nn.functional.cross_entropy(model(image), label)
print(loss.device, model.fc.weight.is_cuda)
""", devices=1)
        self.assertEqual(out, "cuda:0 True\n")

    def test_data_parallel(self):
        out = ranks.run_program(NET + """
model = Net()
model.cuda()
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
chosen = nn.DataParallel(model.module, device_ids=[0, 1])
for image, label in dataloader:
    out = model(image.cuda())
    again = chosen(image.cuda())
print(torch.cuda.device_count(), model.device_ids, out.device, torch.allclose(out, again))
""", devices=2)
        self.assertEqual(out, "2 [0, 1] cuda:0 True\n")

    def test_visible_devices(self):
        out = ranks.run_program("""
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "1,2"
import athanor as torch
print(torch.cuda.device_count())
""", devices=4)
        self.assertEqual(out, "2\n")

    def test_distributed_data_parallel_under_the_old_launcher(self):
        out = ranks.run_program("""
import argparse
import os
import athanor as torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
os.environ['GLOO_SOCKET_IFNAME'] = 'eth0'
os.environ['NCCL_SOCKET_IFNAME'] = 'eth0'
assert torch.distributed.is_nccl_available()
torch.distributed.init_process_group(backend='nccl')
torch.manual_seed(args.local_rank)
train_dataset = torch.utils.data.TensorDataset(torch.randn(64, 4))
train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=16, sampler=train_sampler)
model = torch.nn.Linear(4, 2).cuda()
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
for x, in train_loader:
    model(x.cuda()).sum().backward()
grads = [torch.zeros(2, 4).cuda() for _ in range(2)]
torch.distributed.all_gather(grads, model.module.weight.grad)
# One write: ranks share the pipe, and Python's output has no buffer here.
same = grads[0].cpu().equal(grads[1].cpu())
print(f"{len(train_loader)} {model.module.weight.device.index == args.local_rank} {same}\\n", end="", flush=True)
""", devices=2, prefix=("-m", "athanor.distributed.launch", "--nproc_per_node=2"))
        self.assertEqual(sorted(out.splitlines()), ["2 True True"] * 2)


class Job(unittest.TestCase):
    PROGRAM = os.path.join(ROOT, "examples", "python", "mnist.py")
    FLAGS = ["--epochs=1", "--batch-size", "32", "--test-batch-size", "64", "--lr", "0.01", "--momentum", "0.9",
             "--log-interval", "10", "--save-model", "--synthetic", "--limit", "640"]

    def run_job(self, folder, *more, prefix=()):
        done = subprocess.run(
            [sys.executable, *prefix, self.PROGRAM, *self.FLAGS, "--log-path", os.path.join(folder, "master.log"), *more],
            capture_output=True, text=True, timeout=120, cwd=folder, env=ranks.package_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_program_of_the_pytorchjob_with_its_flags(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            self.run_job(folder)
            with open(os.path.join(folder, "master.log")) as file:
                log = file.read()
            self.assertRegex(log, r"Train Epoch: 1 \[0/640 \(0%\)\]\tloss=2\.\d{4}")
            self.assertRegex(log, r"Train Epoch: 1 \[320/640 \(50%\)\]\tloss=")
            self.assertRegex(log, r"accuracy=0\.\d{4}")
            state = torch.load(os.path.join(folder, "mnist_cnn.pt"))
            self.assertIn("conv1.weight", state)

    def test_two_replicas(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            out = self.run_job(folder, "--backend", "tcp", prefix=("-m", "athanor.distributed.run",
                                                                   "--nproc-per-node=2"))
            self.assertIn("accuracy=", out)
            self.assertTrue(os.path.exists(os.path.join(folder, "mnist_cnn.pt")))


if __name__ == "__main__":
    unittest.main()
