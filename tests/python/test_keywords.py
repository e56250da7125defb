"""Keywords that a function does not know are refused, not dropped."""

from __future__ import annotations

import inspect
import os
import tempfile
import unittest
import warnings

import athanor
import athanor.distributed as dist
from athanor import nn
from athanor.nn.parallel import DistributedDataParallel

# Of PyTorch 2.15.
DDP_KEYWORDS = """module device_ids output_device dim broadcast_buffers init_sync process_group bucket_cap_mb
find_unused_parameters check_reduction gradient_as_bucket_view static_graph delay_all_reduce_named_params
param_to_hook_all_reduce mixed_precision device_mesh skip_all_reduce_unused_params bucket_cap_mb_list batched_grad_copy
forward_sync_buffers lazy_bucket_allocation""".split()


class OfDistributedDataParallel(unittest.TestCase):
    def test_names_and_their_order_are_those_of_pytorch(self) -> None:
        names = list(inspect.signature(DistributedDataParallel.__init__).parameters)[1:]
        self.assertEqual(names, DDP_KEYWORDS)

    def test_a_misspelt_name_is_a_type_error(self) -> None:
        with self.assertRaisesRegex(TypeError, "find_unused_paramters"):
            DistributedDataParallel(nn.Linear(1, 1), find_unused_paramters=True)

    def test_what_is_not_supported_is_refused_with_the_way_out(self) -> None:
        for name, way_out in (("mixed_precision", "autocast"), ("delay_all_reduce_named_params", "leave it out"),
                              ("param_to_hook_all_reduce", "leave it out"), ("device_mesh", "process_group"),
                              ("skip_all_reduce_unused_params", "requires_grad_")):
            with self.assertRaisesRegex(NotImplementedError, f"{name} is not supported.*{way_out}"):
                DistributedDataParallel(nn.Linear(1, 1), **{name: True})

    def test_what_has_no_effect_is_accepted(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("tcp", init_method="file://" + os.path.join(folder, "store"), rank=0, world_size=1)
            try:
                ddp = DistributedDataParallel(nn.Linear(1, 1), forward_sync_buffers=False, batched_grad_copy=True,
                                              bucket_cap_mb_list=[1, 2], lazy_bucket_allocation=True,
                                              mixed_precision=None)
                self.assertFalse(ddp.broadcast_buffers)
                with self.assertWarnsRegex(FutureWarning, "check_reduction"):
                    DistributedDataParallel(nn.Linear(1, 1), check_reduction=True)
            finally:
                dist.destroy_process_group()


class OfOthers(unittest.TestCase):
    def test_unknown_names_are_type_errors(self) -> None:
        for call in (athanor.cuda.Event, athanor.cuda.Stream, athanor.jit.script, athanor.random.fork_rng):
            with self.assertRaises(TypeError, msg=str(call)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(nonsense=3)


if __name__ == "__main__":
    unittest.main()
