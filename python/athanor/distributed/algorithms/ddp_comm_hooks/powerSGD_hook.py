"""Gradients as products of two thin matrices (Vogels, Karimireddy & Jaggi, NeurIPS 2019)."""
from __future__ import annotations

from typing import Optional

from ...._C import _distributed as _core
from ...._C._distributed import GradBucket, ProcessGroup
from ....futures import Future


class PowerSGDState:
    """What PowerSGD remembers; one per DistributedDataParallel.

    matrix_approximation_rank: columns of the factors. start_powerSGD_iter: plain averaging until then, at least 2 with
    error feedback or warm start. min_compression_rate: a gradient is compressed if its factors, times this, are smaller.
    ValueError for options that cannot work.
    """

    def __init__(self, process_group: Optional[ProcessGroup], matrix_approximation_rank: int = 1,
                 start_powerSGD_iter: int = 1_000, min_compression_rate: float = 2, use_error_feedback: bool = True,
                 warm_start: bool = True, orthogonalization_epsilon: float = 0, random_seed: int = 0,
                 compression_stats_logging_frequency: int = 10_000, batch_tensors_with_same_shape: bool = False):
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self._state = _core._power_sgd_state(process_group, matrix_approximation_rank, start_powerSGD_iter,
                                             min_compression_rate, use_error_feedback, warm_start,
                                             orthogonalization_epsilon, random_seed)

    @property
    def iter(self) -> int:
        """Steps so far."""
        return self._state.iter

    def compression_rate(self) -> float:
        """Elements of gradients over elements sent in their place, in the steps that compressed."""
        return self._state.compression_rate()


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Vectors, and matrices too small to gain, are averaged as they are."""
    result = _core.powerSGD_hook(state._state, bucket)
    return Future._of(result.wait, result.done)
