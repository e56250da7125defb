"""Document 003 (PyTorch: installation and basics): its code with the import changed. What it gets wrong is asserted as
wrong, and stands in docs/documents.md."""
import contextlib
import io
import unittest
import warnings

import athanor as torch
import ranks
from athanor import jit
from athanor.utils.data import DataLoader, TensorDataset

try:
    import numpy as np
except ImportError:
    np = None


class Creating(unittest.TestCase):
    def test_from_data(self):
        data = [[1, 2], [3, 4]]
        tensor_from_data = torch.tensor(data)
        self.assertEqual(str(tensor_from_data), "tensor([[1, 2],\n        [3, 4]])")

    def test_of_certain_values(self):
        zero_tensor = torch.zeros((3, 3))
        self.assertEqual(str(zero_tensor), "tensor([[0., 0., 0.],\n        [0., 0., 0.],\n        [0., 0., 0.]])")
        one_tensor = torch.ones((2, 4))
        self.assertEqual(str(one_tensor), "tensor([[1., 1., 1., 1.],\n        [1., 1., 1., 1.]])")
        random_tensor = torch.rand((5, 2))
        self.assertEqual(random_tensor.shape, (5, 2))

    def test_of_a_shape_and_dtype(self):
        tensor_from_data = torch.tensor([[1, 2, 3], [3, 4, 5]])
        self.assertEqual(str(tensor_from_data), "tensor([[1, 2, 3],\n        [3, 4, 5]])")
        zero_int_tensor = torch.zeros((2, 2), dtype=torch.int32)
        self.assertEqual(str(zero_int_tensor), "tensor([[0, 0],\n        [0, 0]], dtype=torch.int32)")
        same_shape_tensor = torch.zeros_like(tensor_from_data)
        self.assertEqual(str(same_shape_tensor), "tensor([[0, 0, 0],\n        [0, 0, 0]])")

    @unittest.skipIf(np is None, "NumPy is not there")
    def test_from_numpy(self):
        np_array = np.array([[1, 2, 3], [4, 5, 6]])
        tensor_from_np = torch.from_numpy(np_array)
        self.assertEqual(str(tensor_from_np), "tensor([[1, 2, 3],\n        [4, 5, 6]])")
        np_array[0, 0] = 7
        self.assertEqual(tensor_from_np[0, 0].item(), 7)

    def test_on_the_device_there_is(self):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        gpu_tensor = torch.ones((2, 3), device=device)
        self.assertEqual(str(gpu_tensor), "tensor([[1., 1., 1.],\n        [1., 1., 1.]])")

    def test_on_a_device(self):
        out = ranks.run_program("""
import athanor as torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
gpu_tensor = torch.ones((2, 3), device=device)
print(gpu_tensor)
""", devices=2)
        self.assertEqual(out, "tensor([[1., 1., 1.],\n        [1., 1., 1.]], device='cuda:0')\n")

    def test_of_random_values_and_from_a_tensor(self):
        normal_tensor = torch.randn((3, 3))
        self.assertEqual(normal_tensor.size(), torch.Size([3, 3]))
        tensor_from_data = torch.tensor([[1, 2], [3, 4]])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            new_tensor = torch.tensor(tensor_from_data)
        self.assertEqual(str(new_tensor), "tensor([[1, 2],\n        [3, 4]])")
        self.assertIn("detach().clone()", str(seen[0].message))


class Operations(unittest.TestCase):
    def setUp(self):
        self.a = torch.tensor([[1, 2], [3, 4]])
        self.b = torch.tensor([[5, 6], [7, 8]])

    def test_addition(self):
        tensor_sum = self.a + self.b
        tensor_sum_alt = torch.add(self.a, self.b)
        self.assertEqual(str(tensor_sum), "tensor([[ 6,  8],\n        [10, 12]])")
        self.assertTrue(tensor_sum.equal(tensor_sum_alt))
        self.assertEqual(str(self.a + 10), "tensor([[11, 12],\n        [13, 14]])")

    def test_indices_and_slices(self):
        tensor_a = self.a
        self.assertEqual(str(tensor_a[0, 1]), "tensor(2)")
        self.assertEqual(str(tensor_a[0, :]), "tensor([1, 2])")
        self.assertEqual(str(tensor_a[:, 1]), "tensor([2, 4])")
        self.assertEqual(str(tensor_a[0:2, 0:2]), "tensor([[1, 2],\n        [3, 4]])")

    def test_shapes(self):
        tensor_a = self.a
        self.assertEqual(str(tensor_a.shape), "torch.Size([2, 2])")
        self.assertEqual(str(tensor_a.view(1, 4)), "tensor([[1, 2, 3, 4]])")
        self.assertEqual(str(torch.reshape(tensor_a, (1, 4))), "tensor([[1, 2, 3, 4]])")
        tensor_c = torch.tensor([1, 2, 3, 4])
        expanded_tensor = torch.unsqueeze(tensor_c, 0)
        self.assertEqual(str(expanded_tensor), "tensor([[1, 2, 3, 4]])")
        self.assertEqual(str(torch.squeeze(expanded_tensor)), "tensor([1, 2, 3, 4])")
        tensor_d = torch.tensor([[1, 2, 3], [4, 5, 6]])
        transposed_tensor = torch.transpose(tensor_d, 0, 1)
        self.assertEqual(str(transposed_tensor), "tensor([[1, 4],\n        [2, 5],\n        [3, 6]])")
        self.assertTrue(tensor_d.T.equal(transposed_tensor))

    def test_broadcasting(self):
        broadcast_sum = torch.tensor([[1], [2]]) + torch.tensor([[3, 4]])
        self.assertEqual(str(broadcast_sum), "tensor([[4, 5],\n        [5, 6]])")


class Autograd(unittest.TestCase):
    def test_a_number(self):
        x = torch.tensor(2.0, requires_grad=True)
        y = torch.tensor(3.0, requires_grad=True)
        out = x * y
        out.backward()
        self.assertEqual(f"{x.grad} {y.grad}", "3.0 2.0")

    def test_backward_of_one_is_backward(self):
        x = torch.tensor(2.0, requires_grad=True)
        (x * 3).backward(torch.tensor(1.))
        self.assertEqual(x.grad.item(), 3.0)

    def test_a_vector_needs_a_gradient(self):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = torch.tensor([3.0, 4.0], requires_grad=True)
        z = x**2 + y**2
        z.backward(torch.tensor([1.0, 1.0]))
        self.assertEqual((x.grad.tolist(), y.grad.tolist()), ([2.0, 4.0], [6.0, 8.0]))

    def test_a_tensor_that_requires_grad_says_so(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        self.assertEqual(str(x), "tensor([2., 3.], requires_grad=True)")

    def test_backward_of_a_vector_raises_and_of_its_sum_gives_what_the_document_says(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        y = x**2 + 3*x
        with self.assertRaisesRegex(RuntimeError, "grad can be implicitly created only for scalar outputs"):
            y.backward()
        y.sum().backward()
        self.assertEqual(str(x.grad), "tensor([7., 9.])")

    def test_without_recording(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        with torch.no_grad():
            z = x * 2
        self.assertEqual(str(z), "tensor([4., 6.])")
        z = x.detach()
        self.assertEqual(str(z), "tensor([2., 3.])")

    def test_gradients_add_up_until_they_are_zeroed(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        for _ in range(2):
            (x**2 + 3*x).sum().backward()
        self.assertEqual(x.grad.tolist(), [14.0, 18.0])
        x.grad.zero_()
        (x**2 + 3*x).sum().backward()
        self.assertEqual(str(x.grad), "tensor([7., 9.])")

    def test_second_derivatives(self):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        y = x**2 + 3*x
        y.sum().backward(create_graph=True)
        x_grad = x.grad
        x.grad.zero_()  # the document's: x_grad is the same tensor, so its values are zeroed as well
        self.assertEqual(x_grad.tolist(), [0.0, 0.0])

        # Mended: the gradient is kept as a tensor of its own, and .grad is let go.
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        (x**2 + 3*x).sum().backward(create_graph=True)
        x_grad = x.grad
        x.grad = None
        x_grad.sum().backward()
        self.assertEqual(x.grad.tolist(), [2.0, 2.0])


MODEL = """
import athanor as torch
import athanor.nn as nn
import athanor.optim as optim
torch.manual_seed(0)
class SimpleModel(nn.Module):
    def __init__(self):
        super(SimpleModel, self).__init__()
        self.fc = nn.Linear(10, 10)

    def forward(self, x):
        return self.fc(x)
"""

PARALLEL_NET = """
import athanor as torch
import athanor.nn as nn
class ModelParallelNet(nn.Module):
    def __init__(self):
        super(ModelParallelNet, self).__init__()
        self.fc1 = nn.Linear(%d, %d).to('cuda:0')
        self.fc2 = nn.Linear(%d, %d).to('cuda:1')

    def forward(self, x):
        x = x.to('cuda:0')
        x = self.fc1(x)
        x = x.to('cuda:1')
        x = self.fc2(x)
        return x
model = ModelParallelNet()
"""

DDP = """
import athanor as torch
import athanor.distributed as dist
import athanor.nn as nn
import athanor.optim as optim
from athanor.nn.parallel import DistributedDataParallel as DDP

def setup(rank, world_size):
    dist.init_process_group("%s", rank=rank, world_size=world_size)

def cleanup():
    dist.destroy_process_group()

def demo_ddp(rank, world_size):
    setup(rank, world_size)
    torch.manual_seed(rank)
    model = nn.Linear(10, 10)%s
    ddp_model = DDP(model%s)
    criterion = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    inputs = torch.randn(32, 10)%s
    targets = torch.randn(32, 10)%s
    outputs = ddp_model(inputs)
    loss = criterion(outputs, targets)
    loss.backward()
    optimizer.step()
    every = [None] * world_size
    dist.all_gather_object(every, model.weight.sum().item())
    if rank == 0:
        print(len(set(every)), flush=True)
    cleanup()

if __name__ == "__main__":
    world_size = 4
    torch.multiprocessing.spawn(demo_ddp, args=(world_size,), nprocs=world_size, join=True)
"""


class Parallel(unittest.TestCase):
    def test_data_parallel(self):
        out = ranks.run_program(MODEL + """
model = SimpleModel()
model = nn.DataParallel(model)
model = model.cuda()
criterion = nn.MSELoss()
optimizer = optim.SGD(model.parameters(), lr=0.001)
inputs = torch.randn(32, 10).cuda()
targets = torch.randn(32, 10).cuda()
before = model.module.fc.weight.clone()
outputs = model(inputs)
loss = criterion(outputs, targets)
loss.backward()
optimizer.step()
print(outputs.shape, outputs.device, not before.equal(model.module.fc.weight))
""", devices=2)
        self.assertEqual(out, "torch.Size([32, 10]) cuda:0 True\n")

    def test_without_a_device_data_parallel_runs_the_module(self):
        out = ranks.run_program(MODEL + """
model = nn.DataParallel(SimpleModel())
print(model(torch.randn(32, 10)).shape)
""")
        self.assertEqual(out, "torch.Size([32, 10])\n")

    def test_distributed_data_parallel(self):
        rank = ".to(rank)"
        self.assertEqual(ranks.run_program(DDP % ("nccl", rank, ", device_ids=[rank]", rank, rank), devices=4), "1\n")

    def test_distributed_data_parallel_on_the_host(self):
        self.assertEqual(ranks.run_program(DDP % ("tcp", "", "", "", "")), "1\n")

    def test_a_model_on_two_devices(self):
        out = ranks.run_program(PARALLEL_NET % (10, 10, 10, 10) + """
inputs = torch.randn(32, 10).to('cuda:0')
outputs = model(inputs)
print(outputs.shape, outputs.device, str(outputs).endswith("device='cuda:1', grad_fn=<AddmmBackward0>)"))
""", devices=2)
        self.assertEqual(out, "torch.Size([32, 10]) cuda:1 True\n")

    def test_a_larger_model_on_two_devices(self):
        out = ranks.run_program(PARALLEL_NET % (5000, 10000, 10000, 5000) + """
inputs = torch.randn(32, 5000).to('cuda:0')
outputs = model(inputs)
print(outputs.device)
""", devices=2)
        self.assertEqual(out, "cuda:1\n")

    def test_loading_by_several_processes(self):
        data = torch.randn(1000, 10)
        targets = torch.randn(1000, 1)
        dataset = TensorDataset(data, targets)
        data_loader = DataLoader(dataset, batch_size=32, num_workers=4)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            for batch_data, batch_targets in data_loader:
                print(batch_data.size(), batch_targets.size())
        self.assertEqual(out.getvalue(), "torch.Size([32, 10]) torch.Size([32, 1])\n" * 31
                         + "torch.Size([8, 10]) torch.Size([8, 1])\n")

    def test_fork_and_wait(self):
        def compute(x):
            return x * x

        fut1 = jit.fork(compute, torch.tensor(10))
        fut2 = jit.fork(compute, torch.tensor(20))
        result1 = jit.wait(fut1)
        result2 = jit.wait(fut2)
        self.assertEqual(f"{result1!s} {result2!s}", "tensor(100) tensor(400)")
        self.assertIs(torch.jit.fork, jit.fork)


if __name__ == "__main__":
    unittest.main()
