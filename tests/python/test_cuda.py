"""athanor.cuda and athanor.backends: honest without devices, complete with ATHANOR_CUDA_ON_CPU."""
import tempfile
import unittest

import athanor as torch
import ranks


@unittest.skipIf(torch.cuda.is_available(), "this process has devices")
class Without(unittest.TestCase):
    def test_there_is_no_device(self):
        self.assertEqual(torch.cuda.device_count(), 0)
        self.assertFalse(torch.cuda.is_initialized())
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        torch.cuda.empty_cache()
        torch.cuda.manual_seed_all(3)

    def test_what_needs_one_says_how_to_get_one(self):
        for call in (torch.cuda.current_device, torch.cuda.synchronize, lambda: torch.cuda.set_device(0),
                     torch.cuda.get_device_name, torch.cuda.init, lambda: torch.cuda.Stream()):
            with self.assertRaisesRegex(AssertionError, "not compiled with CUDA.*ATHANOR_CUDA_ON_CPU"):
                call()
        for call in (lambda: torch.ones(1).cuda(), lambda: torch.ones(1, device="cuda"),
                     lambda: torch.nn.Linear(1, 1).cuda()):
            with self.assertRaises((AssertionError, RuntimeError)):
                call()

    def test_devices_of_none_change_nothing(self):
        with torch.cuda.device(None), torch.cuda.device(-1), torch.cuda.device_of(torch.ones(1)), \
                torch.cuda.stream(None):
            pass
        with self.assertRaisesRegex(ValueError, "Expected a cuda device"):
            torch.cuda.set_device("cpu")

    def test_backends(self):
        import athanor.backends.cudnn as cudnn

        cudnn.benchmark = True
        self.assertTrue(torch.backends.cudnn.benchmark)
        self.assertFalse(torch.backends.cudnn.is_available())
        self.assertIsNone(torch.backends.cudnn.version())
        self.assertFalse(torch.backends.mps.is_available())
        torch.backends.cuda.matmul.allow_tf32 = True


class With(unittest.TestCase):
    def check(self, body, expected, devices=2, **more):
        self.assertEqual(ranks.run_program("import athanor as torch\n" + body, devices=devices, **more), expected)

    def test_devices_have_numbers_and_names(self):
        self.check("""
c = torch.cuda
print(c.is_available(), c.device_count(), c.current_device(), len(c.get_device_name(1)) > 0,
      c.get_device_properties(0).total_memory > 0, c.get_device_capability())
c.set_device(1)
print(torch.ones(1, device="cuda").device, torch.device("cuda"), torch.ones(2).cuda())
with c.device(0):
    print(c.current_device(), torch.zeros(1).cuda().device)
print(c.current_device())
with c.device_of(torch.ones(1, device="cuda:0")):
    print(c.current_device())
c.set_device("cuda:0")
print(torch.ones(1, device=1).device, torch.ones(1).to(1).device, torch.ones(1).cuda(1).get_device())
""", "True 2 0 True True (0, 0)\ncuda:1 cuda tensor([1., 1.], device='cuda:1')\n0 cuda:0\n1\n0\ncuda:1 cuda:1 1\n")

    def test_indices_may_lie_on_the_host(self):
        self.check("""
x = torch.arange(6.0).view(2, 3).cuda().requires_grad_()
print(x[[1]].tolist(), x[torch.tensor([0, 1]), torch.tensor([2, 0])].tolist(), x[x.cpu() > 3].tolist(), x[[True, False]].device)
x[[0]].sum().backward()
print(x.grad.tolist(), x.index_put((torch.tensor([0]),), torch.ones(3).cuda()).sum().item())
y = x.detach().clone()
y[torch.tensor([0])] = [7.0, 8.0, 9.0]
y[y.cpu() > 8] = torch.tensor(-1.0)
y[[1], [0]] = 0
print(y.tolist())
def error(f):
    try:
        f()
    except RuntimeError as e:
        print(e)
error(lambda: x.cpu()[torch.tensor([0]).cuda()])
error(lambda: x[torch.tensor([0], device="cuda:1")])
""", "[[3.0, 4.0, 5.0]] [2.0, 3.0] [4.0, 5.0] cuda:0\n[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]] 15.0\n"
     "[[7.0, 8.0, -1.0], [0.0, 4.0, 5.0]]\n"
     "indices should be either on cpu or on the same device as the indexed tensor (cpu), got one on cuda:0\n"
     "indices should be either on cpu or on the same device as the indexed tensor (cuda:0), got one on cuda:1\n")

    def test_memory_is_counted(self):
        self.check("""
c = torch.cuda
before = c.memory_allocated()
t = torch.ones(1 << 20, device="cuda")
c.synchronize()
print(c.memory_allocated() - before >= 4 << 20, c.max_memory_allocated() >= 4 << 20, c.memory_reserved() >= 4 << 20)
del t
c.synchronize()
print(c.memory_allocated() - before < 4 << 20)
c.reset_peak_memory_stats()
print(c.max_memory_allocated() < 4 << 20)
c.empty_cache()
free, total = c.mem_get_info()
print(0 < free <= total, "allocated_bytes.all.peak" in c.memory_stats(), len(c.memory_summary()) > 0)
""", "True True True\nTrue\nTrue\nTrue True True\n")

    def test_streams_and_events(self):
        self.check("""
c = torch.cuda
begin, end = c.Event(enable_timing=True), c.Event(enable_timing=True)
begin.record()
x = torch.randn(200, 200, device="cuda")
with c.stream(c.Stream()):
    y = x @ x
end.record()
c.synchronize()
print(begin.elapsed_time(end) >= 0, end.query(), c.current_stream() == c.default_stream())
c.current_stream().wait_stream(c.Stream(1))
try:
    c.Event().elapsed_time(end)
except RuntimeError as error:
    print("timing" in str(error))
""", "True True True\nTrue\n")

    def test_files_say_where_tensors_were(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(f"""
path = {folder + "/file.pt"!r}
layer = torch.nn.Linear(2, 2).cuda(1)
torch.save(dict(state=layer.state_dict(), p=layer.bias, gpu=torch.arange(3.0, device="cuda:0"), host=torch.ones(1)), path)
def places(map_location=None):
    d = torch.load(path, map_location=map_location)
    print(d["state"]["weight"].device, d["p"].device, d["gpu"].device, d["host"].device)
    return d
print(places()["gpu"].tolist(), type(places()["p"]).__name__)
places("cpu")
places({{"cuda:1": "cuda:0"}})
places(lambda storage, location: storage.cuda(1) if location == "cuda:0" else None)
""", "cuda:1 cuda:1 cuda:0 cpu\ncuda:1 cuda:1 cuda:0 cpu\n[0.0, 1.0, 2.0] Parameter\ncpu cpu cpu cpu\n"
                "cuda:0 cuda:0 cuda:0 cpu\ncuda:1 cuda:1 cuda:1 cpu\n")
            for map_location, expected in (("'cpu'", "[0.0, 1.0, 2.0]"), ("None", "cuda:1 map_location='cpu'")):
                self.check(f"""
try:
    print(torch.load({folder + "/file.pt"!r}, map_location={map_location})["gpu"].tolist())
except RuntimeError as error:
    print(*[part for part in ("cuda:1", "map_location='cpu'") if part in str(error)])
""", expected + "\n", devices=0)

    def test_a_device_that_is_not_there(self):
        self.check("""
for call in (lambda: torch.cuda.set_device(5), lambda: torch.ones(1, device="cuda:5"),
             lambda: torch.ones(1, device="cuda:0") + torch.ones(1, device="cuda:1")):
    try:
        call()
        print("went on")
    except RuntimeError as error:
        print("raised")
""", "raised\nraised\nraised\n")

    def test_the_collectives_of_nccl(self):
        self.check("""
import athanor.distributed as dist, athanor.multiprocessing as mp
def main(rank, size):
    dist.init_process_group("nccl", rank=rank, world_size=size)
    t = torch.ones(3, device=f"cuda:{rank}") * (rank + 1)
    dist.all_reduce(t)
    assert t.tolist() == [3.0] * 3, t
    assert dist.get_backend() == "nccl", dist.get_backend()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(main, args=(2,), nprocs=2)
    print(dist.is_nccl_available())
""", "True\n")


if __name__ == "__main__":
    unittest.main()
