"""Data parallelism: over the devices of one process (DataParallel), over processes (DistributedDataParallel); pipelines; layers split over devices."""
from .balance import balance_by_cost, balance_by_size, balance_by_time
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel
from .parallel_apply import parallel_apply
from .pipeline import Pipeline, PipelineStep, pipeline_steps
from .replicate import replicate
from .scatter_gather import gather, scatter, scatter_kwargs
from .sync_batchnorm import SyncBatchNorm
from .tensor_parallel import ColumnParallelLinear, ParallelEmbedding, ParallelMultiheadAttention, RowParallelLinear

__all__ = ["ColumnParallelLinear", "DataParallel", "DistributedDataParallel", "ParallelEmbedding",
           "ParallelMultiheadAttention", "Pipeline", "PipelineStep", "RowParallelLinear", "SyncBatchNorm", "balance_by_cost",
           "balance_by_size", "balance_by_time", "data_parallel", "gather", "parallel_apply", "pipeline_steps", "replicate", "scatter", "scatter_kwargs"]

DistributedDataParallelCPU = DistributedDataParallel
