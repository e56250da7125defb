"""Models."""

from __future__ import annotations

from athanor.vision.models import resnet as resnet
from athanor.vision.models.resnet import ResNet as ResNet
from athanor.vision.models.resnet import resnet18 as resnet18
from athanor.vision.models.resnet import resnet34 as resnet34
from athanor.vision.models.resnet import resnet50 as resnet50
from athanor.vision.models.resnet import resnet101 as resnet101
from athanor.vision.models.resnet import resnet152 as resnet152
from athanor.vision.models.resnet import resnext50_32x4d as resnext50_32x4d
from athanor.vision.models.resnet import resnext101_32x8d as resnext101_32x8d
from athanor.vision.models.resnet import resnext101_64x4d as resnext101_64x4d
from athanor.vision.models.resnet import wide_resnet50_2 as wide_resnet50_2
from athanor.vision.models.resnet import wide_resnet101_2 as wide_resnet101_2
