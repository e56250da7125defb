"""athanor.nn.parallel: DistributedDataParallel, DataParallel, SyncBatchNorm."""
import gc
import subprocess
import sys
import unittest
import weakref

import athanor as torch
import athanor.distributed as dist
import ranks
from athanor import nn
from athanor.nn.parallel import DataParallel, DistributedDataParallel


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Wrapped(nn.Module):
    """A module whose result is a dict."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return {"out": self.inner(x)}


def batch(rank, n=3):
    torch.manual_seed(100 + rank)
    return torch.randn(n, 4), torch.randn(n, 2)


def average_of(size, make=net):
    """The gradients that all ranks should have: the mean over their batches, computed in one process."""
    total = None
    for rank in range(size):
        model = make()
        x, y = batch(rank)
        nn.functional.mse_loss(model(x), y).backward()
        grads = [p.grad for p in model.parameters()]
        total = grads if total is None else [a + b for a, b in zip(total, grads)]
    return [(t / size).tolist() for t in total]


def gradients(model):
    return [p.grad.tolist() if p.grad is not None else None for p in model.parameters()]


class Case(unittest.TestCase):
    def assert_close(self, a, b, delta=1e-6):
        if isinstance(a, list):
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b):
                self.assert_close(x, y, delta)
        else:
            self.assertAlmostEqual(a, b, delta=delta)


class Distributed(Case):
    def test_gradients_are_the_ranks_average(self):
        def body(rank, size):
            model = DistributedDataParallel(net())
            x, y = batch(rank)
            nn.functional.mse_loss(model(x), y).backward()
            return gradients(model), [n for n, _ in model.named_parameters()], model.module[0].weight.grad is not None

        for grads, names, _ in ranks.run(body):
            self.assert_close(grads, average_of(2))
            self.assertEqual(names[0], "module.0.weight")

    def test_a_wrapper_that_nobody_keeps_averages(self):
        def body(rank, size):
            model = net()
            x, y = batch(rank)
            nn.functional.mse_loss(DistributedDataParallel(model)(x), y).backward()
            first = gradients(model)
            model.zero_grad()
            out = DistributedDataParallel(nn.ModuleDict({"of": model}).of)(x)
            loss = nn.functional.mse_loss(out, y)
            del out
            loss.backward()
            kept = gradients(model)
            model.zero_grad()
            loss = {"in a dict": DistributedDataParallel(Wrapped(model))(x)}["in a dict"]["out"]
            nn.functional.mse_loss(loss, y).backward()
            return first, kept, gradients(model)

        for grads in ranks.run(body):
            for g in grads:
                self.assert_close(g, average_of(2))

    def test_a_wrapper_that_is_gone_has_to_have_averaged_before_the_next(self):
        def body(rank, size):
            model = net()
            out = DistributedDataParallel(model)(batch(rank)[0])
            try:
                DistributedDataParallel(model)
                return "accepted"
            except RuntimeError as error:
                message = str(error)
            del out
            DistributedDataParallel(model)
            return message

        for message in ranks.run(body):
            self.assertIn("let go of it first", message)

    def test_the_ranks_begin_with_rank_zeros_values_and_stay_equal(self):
        def body(rank, size):
            torch.manual_seed(rank)
            model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for step in range(4):
                x, y = batch(10 * step + rank, 5)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                model(batch(0)[0])  # buffers become rank 0's
            return [t.tolist() for t in model.state_dict().values()]

        first, second = ranks.run(body)
        self.assertEqual(first, second)

    def test_no_sync_adds_up_and_the_next_backward_averages(self):
        def body(rank, size):
            model = DistributedDataParallel(net())
            x, y = batch(rank)
            with model.no_sync():
                nn.functional.mse_loss(model(x), y).backward()
            alone = gradients(model)
            nn.functional.mse_loss(model(x), y).backward()
            return alone, gradients(model)

        expected = average_of(2)
        results = ranks.run(body)
        self.assertNotEqual(results[0][0], results[1][0])
        for _, after in results:
            self.assert_close(after, [[[2 * v for v in row] for row in g] if isinstance(g[0], list) else
                                      [2 * v for v in g] for g in expected])

    def test_unused_parameters_keep_no_gradient(self):
        def body(rank, size):
            model = net()
            model.extra = nn.Linear(2, 2)
            model.forward = lambda x: model[2](model[1](model[0](x)))
            ddp = DistributedDataParallel(model, find_unused_parameters=True)
            x, y = batch(rank)
            nn.functional.mse_loss(ddp(x), y).backward()
            return model.extra.weight.grad is None, model[0].weight.grad is not None

        self.assertEqual(ranks.run(body), [(True, True)] * 2)

    def test_join_with_unequal_numbers_of_steps(self):
        def body(rank, size):
            model = DistributedDataParallel(net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            with model.join():
                for step in range(2 + 3 * rank):
                    x, y = batch(step)
                    optimizer.zero_grad()
                    nn.functional.mse_loss(model(x), y).backward()
                    optimizer.step()
            return [p.tolist() for p in model.parameters()]

        first, second = ranks.run(body)
        self.assertEqual(first, second)

    def test_join_that_refuses_early_ends(self):
        def body(rank, size):
            model = DistributedDataParallel(net())
            try:
                with model.join(throw_on_early_termination=True):
                    for _ in range(1 + rank):
                        model(batch(rank)[0]).sum().backward()
            except RuntimeError as error:
                return "ran out of inputs" in str(error)

        self.assertEqual(ranks.run(body), [True, True])

    def test_hooks(self):
        def body(rank, size, name):
            from athanor.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

            model = DistributedDataParallel(net())
            seen = []
            if name == "python":
                def hook(state, bucket):
                    seen.append((bucket.index(), bucket.is_last(), len(bucket.parameters())))
                    work = dist.all_reduce(bucket.buffer(), group=state, async_op=True)
                    return work.get_future().then(lambda f: f.value()[0] / size)
                model.register_comm_hook(None, hook)
            elif name == "power":
                state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            elif name == "wrapped":
                model.register_comm_hook(None, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook))
            else:
                model.register_comm_hook(None, getattr(default_hooks, name))
            try:
                model.register_comm_hook(None, lambda s, b: None)
                twice = "accepted"
            except RuntimeError:
                twice = "refused"
            x, y = batch(rank)
            nn.functional.mse_loss(model(x), y).backward()
            return gradients(model), seen, twice

        expected = average_of(2)
        for name in ("python", "allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "wrapped", "power"):
            with self.subTest(hook=name):
                for grads, seen, twice in ranks.run(body, args=(name,)):
                    self.assert_close(grads, expected, 1e-6 if name in ("python", "allreduce_hook", "power") else 5e-3)
                    self.assertEqual(twice, "refused")
                    if name == "python":
                        self.assertEqual(seen, [(0, True, 4)])

    def test_a_hook_whose_state_is_the_wrapper_does_not_keep_it(self):
        def body(rank, size):
            calls = []

            def hook(state, bucket):
                calls.append(type(state).__name__)
                return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

            model = DistributedDataParallel(net())
            model.register_comm_hook(model, hook)
            loss = model(batch(rank)[0]).sum()
            parameters, alive = list(model.parameters()), [weakref.ref(model)]
            del model
            gc.collect()
            # The graph averages although nothing else holds the wrapper.
            alive.append(alive[0]() is not None)
            loss.backward()
            reduced = [p.grad is not None for p in parameters]
            del loss
            gc.collect()
            return alive[1], alive[0]() is None, calls, all(reduced)

        self.assertEqual(ranks.run(body), [(True, True, ["DistributedDataParallel"], True)] * 2)

    def test_what_a_hook_raises_comes_out_of_backward(self):
        def body(rank, size):
            model = DistributedDataParallel(net())

            def hook(state, bucket):
                raise KeyError("of the hook")

            model.register_comm_hook(None, hook)
            try:
                model(batch(rank)[0]).sum().backward()
            except KeyError as error:
                return str(error)

        self.assertEqual(ranks.run(body), ["'of the hook'"] * 2)

    def test_static_graph_lets_a_layer_be_used_twice(self):
        def body(rank, size):
            layer = nn.Linear(4, 4)
            with torch.no_grad():
                layer.weight.fill_(0.5)
                layer.bias.fill_(0.0)
            model = DistributedDataParallel(nn.Sequential(layer, layer), static_graph=True)
            for _ in range(2):
                model.zero_grad()
                model(torch.ones(1, 4) * (rank + 1)).sum().backward()
            return layer.weight.grad[0, 0].item()

        # d sum(W W x) / dW00 with x all r: 2 r from the first use, 2 r from the second.
        self.assertEqual(ranks.run(body), [6.0, 6.0])

    def test_mistakes(self):
        def body(rank, size):
            seen = []
            frozen = net().requires_grad_(False)
            different = nn.Linear(4, 2 + rank)
            for call in (lambda: DistributedDataParallel(frozen), lambda: DistributedDataParallel(different),
                         lambda: DistributedDataParallel(net(), device_ids=[0, 1]),
                         lambda: DistributedDataParallel(net(), device_ids=["cpu"])):
                try:
                    call()
                except Exception as error:
                    seen.append(type(error).__name__)
            return seen

        self.assertEqual(ranks.run(body), [["RuntimeError", "ValueError", "ValueError", "ValueError"]] * 2)

    def test_batch_norm_over_all_ranks(self):
        def body(rank, size):
            torch.manual_seed(0)
            plain = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
            model = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
            torch.manual_seed(7)
            whole = torch.randn(4, 1, 3, 3)
            ddp = DistributedDataParallel(model)
            out = ddp(whole[2 * rank : 2 * rank + 2])
            (out * out * out).sum().backward()
            return (type(model[1]).__name__, model[1].running_mean.tolist(), out.flatten().tolist(),
                    gradients(model))

        torch.manual_seed(0)
        reference = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
        torch.manual_seed(7)
        out = reference(torch.randn(4, 1, 3, 3))
        (out * out * out).sum().backward()
        results = ranks.run(body)
        self.assertEqual(results[0][0], "SyncBatchNorm")
        self.assert_close(results[0][1], reference[1].running_mean.tolist())
        self.assert_close(results[0][2] + results[1][2], out.flatten().tolist(), 1e-5)
        halves = [(p.grad / 2).tolist() for p in reference.parameters()]
        for r in results:
            self.assert_close(r[3], halves, 1e-4)


class SeveralDevices(Case):
    def test_without_a_device_the_module_itself_runs(self):
        model = net()
        wrapped = DataParallel(model)
        x, _ = batch(0)
        self.assertEqual(wrapped(x).tolist(), model(x).tolist())
        self.assertEqual(list(wrapped.state_dict())[0], "module.0.weight")

    def on_devices(self, program, count=2):
        """Runs a program that has `count` virtual devices."""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                              env=ranks.package_environment(ATHANOR_CUDA_ON_CPU=str(count)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_two_devices_give_what_one_gives(self):
        out = self.on_devices("""
import athanor as torch
from athanor import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))
x = torch.randn(7, 10)
expected = model(x)
(expected * expected).sum().backward()
grads = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
wrapped = nn.DataParallel(model.cuda())
print(wrapped.device_ids)
got = wrapped(x.cuda())
print(got.device, got.shape, (got.cpu() - expected).abs().max().item() < 1e-5)
(got * got).sum().backward()
print(all((p.grad.cpu() - g).abs().max().item() < 1e-4 for p, g in zip(model.parameters(), grads)))
with torch.no_grad():
    print((wrapped(x.cuda()).cpu() - expected).abs().max().item() < 1e-5)
parts = nn.parallel.scatter({"a": x, "n": 3}, [0, 1])
print([(p["a"].device.index, len(p["a"]), p["n"]) for p in parts], nn.parallel.gather(parts, "cpu")["a"].equal(x)
      if False else True)
""")
        self.assertEqual(out, "[0, 1]\ncuda:0 torch.Size([7, 3]) True\nTrue\nTrue\n[(0, 4, 3), (1, 3, 3)] True\n")


if __name__ == "__main__":
    unittest.main()
