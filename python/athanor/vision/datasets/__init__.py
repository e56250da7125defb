"""Datasets of images."""

from __future__ import annotations

from athanor.vision.datasets.cifar import CIFAR10 as CIFAR10
from athanor.vision.datasets.cifar import CIFAR100 as CIFAR100
from athanor.vision.datasets.fakedata import FakeData as FakeData
from athanor.vision.datasets.folder import DatasetFolder as DatasetFolder
from athanor.vision.datasets.folder import ImageFolder as ImageFolder
from athanor.vision.datasets.mnist import EMNIST as EMNIST
from athanor.vision.datasets.mnist import KMNIST as KMNIST
from athanor.vision.datasets.mnist import MNIST as MNIST
from athanor.vision.datasets.mnist import QMNIST as QMNIST
from athanor.vision.datasets.mnist import FashionMNIST as FashionMNIST
from athanor.vision.datasets.vision import VisionDataset as VisionDataset
