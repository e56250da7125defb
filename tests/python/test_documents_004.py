"""Document 004 (a diary about torch.distributed.launch): its code with the import changed."""
import unittest

import athanor as torch
import ranks

# What the document puts together, with a model and a dataset, --local_rank as a number, and the host where there are no
# devices.
PROGRAM = """
import argparse
import os
import athanor as torch
import athanor.distributed as dist
from athanor.utils.data import DataLoader, TensorDataset
from athanor.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description='training')
parser.add_argument('--local_rank', '--local-rank', type=int, default=None, help='local rank for dist')
args = parser.parse_args()
local_rank = args.local_rank
if local_rank is None:
    local_rank = int(os.environ['LOCAL_RANK'])
cuda = torch.cuda.is_available()
dist.init_process_group(backend='nccl' if cuda else 'tcp', init_method='env://')
if cuda:
    torch.cuda.set_device(local_rank)
    with torch.cuda.device(local_rank):
        assert torch.cuda.current_device() == local_rank
torch.manual_seed(0)
model = torch.nn.Linear(1, 1, bias=False)
if cuda:
    model = model.cuda()
model = torch.nn.parallel.DistributedDataParallel(
    model, device_ids=[local_rank] if cuda else None, output_device=local_rank if cuda else None)
dataset = TensorDataset(torch.arange(10).view(10, 1) * 1.0)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset=dataset, sampler=sampler, batch_size=5)
seen = []
for x, in loader:
    seen += x.flatten().tolist()
    model(x.cuda() if cuda else x).sum().backward()
both = [None] * dist.get_world_size()
dist.all_gather_object(both, seen)
# One write: ranks share the pipe, and Python's output has no buffer here.
same = sorted(both[0] + both[1]) == [float(i) for i in range(10)]
print(f"{local_rank} {args.local_rank is not None} {same} {model.module.weight.grad.item()}\\n", end="", flush=True)
"""


class Launch(unittest.TestCase):
    def launched(self, *flags, module="launch", devices=0):
        out = ranks.run_program(PROGRAM, prefix=("-m", f"athanor.distributed.{module}", *flags), devices=devices)
        return sorted(out.splitlines())

    def test_one_node_with_the_old_launcher(self):
        # Each rank's sum of five numbers, averaged over two: 45 / 2.
        self.assertEqual(self.launched("--nproc-per-node=2"), ["0 True True 22.5", "1 True True 22.5"])

    def test_use_env_passes_no_argument(self):
        self.assertEqual(self.launched("--nproc-per-node=2", "--use-env"), ["0 False True 22.5", "1 False True 22.5"])

    def test_run_passes_no_argument(self):
        self.assertEqual(self.launched("--nproc-per-node=2", module="run"), ["0 False True 22.5", "1 False True 22.5"])

    def test_two_nodes(self):
        import threading

        port = ranks.free_port()
        results = {}

        def node(rank):
            try:
                results[rank] = self.launched("--nproc-per-node=1", "--nnodes=2", f"--node-rank={rank}",
                                              "--master-addr=127.0.0.1", f"--master-port={port}")
            except AssertionError as error:
                results[rank] = str(error)

        threads = [threading.Thread(target=node, args=(rank,)) for rank in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, {0: ["0 True True 22.5"], 1: ["0 True True 22.5"]})

    def test_a_device_per_process(self):
        self.assertEqual(self.launched("--nproc-per-node=2", devices=2), ["0 True True 22.5", "1 True True 22.5"])

    def test_a_worker_that_fails_fails_the_job_with_its_error(self):
        with self.assertRaisesRegex(AssertionError, "ValueError: of the program"):
            ranks.run_program("raise ValueError('of the program')\n",
                              prefix=("-m", "athanor.distributed.run", "--nproc-per-node=2"))


if __name__ == "__main__":
    unittest.main()
