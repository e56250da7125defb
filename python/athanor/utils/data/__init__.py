"""Datasets, samplers and the DataLoader, under PyTorch's names."""

from __future__ import annotations

from athanor.utils.data._worker import WorkerInfo as WorkerInfo
from athanor.utils.data._worker import get_worker_info as get_worker_info
from athanor.utils.data.collate import default_collate as default_collate
from athanor.utils.data.collate import default_convert as default_convert
from athanor.utils.data.dataloader import DataLoader as DataLoader
from athanor.utils.data.dataset import ChainDataset as ChainDataset
from athanor.utils.data.dataset import ConcatDataset as ConcatDataset
from athanor.utils.data.dataset import Dataset as Dataset
from athanor.utils.data.dataset import IterableDataset as IterableDataset
from athanor.utils.data.dataset import StackDataset as StackDataset
from athanor.utils.data.dataset import Subset as Subset
from athanor.utils.data.dataset import TensorDataset as TensorDataset
from athanor.utils.data.dataset import random_split as random_split
from athanor.utils.data.distributed import DistributedSampler as DistributedSampler
from athanor.utils.data.sampler import BatchSampler as BatchSampler
from athanor.utils.data.sampler import RandomSampler as RandomSampler
from athanor.utils.data.sampler import Sampler as Sampler
from athanor.utils.data.sampler import SequentialSampler as SequentialSampler
from athanor.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from athanor.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]
