"""Residual networks (He et al., CVPR 2016), with torchvision's names of classes, arguments and parameters."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Type, Union

import athanor
import athanor.nn as nn
from athanor import Tensor

__all__ = [
    "BasicBlock",
    "Bottleneck",
    "ResNet",
    "resnet101",
    "resnet152",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnext101_32x8d",
    "resnext101_64x4d",
    "resnext50_32x4d",
    "wide_resnet101_2",
    "wide_resnet50_2",
]


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A 3 x 3 convolution that keeps the size at stride 1."""
    return nn.Conv2d(
        in_planes, out_planes, 3, stride=stride, padding=dilation, groups=groups, bias=False, dilation=dilation
    )


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A 1 x 1 convolution."""
    return nn.Conv2d(in_planes, out_planes, 1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside the identity. Raises for groups, another width or dilation, which it has not."""

    expansion: int = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Optional[nn.Module] = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Optional[Callable[..., nn.Module]] = None,
    ) -> None:
        super().__init__()
        if norm_layer is None:
            norm_layer = nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 beside the identity; the stride is the 3 x 3 one's."""

    expansion: int = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Optional[nn.Module] = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Optional[Callable[..., nn.Module]] = None,
    ) -> None:
        super().__init__()
        if norm_layer is None:
            norm_layer = nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


Block = Type[Union[BasicBlock, Bottleneck]]


class ResNet(nn.Module):
    """Four stages of residual blocks between a 7 x 7 convolution and a linear layer.

    Args:
        block: BasicBlock or Bottleneck, or a class of one's own with their arguments.
        layers: number of blocks of each stage.
        num_classes: outputs.
        zero_init_residual: begin with blocks that are the identity.
        groups, width_per_group: ResNeXt's and wide ResNet's numbers.
        replace_stride_with_dilation: for each of the last three stages.
        norm_layer: BatchNorm2d unless given.

    Shape:
        (N, 3, H, W) to (N, num_classes).
    """

    def __init__(
        self,
        block: Block,
        layers: List[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Optional[List[bool]] = None,
        norm_layer: Optional[Callable[..., nn.Module]] = None,
    ) -> None:
        super().__init__()
        self._norm_layer = nn.BatchNorm2d if norm_layer is None else norm_layer
        self.inplanes = 64
        self.dilation = 1
        dilate = [False, False, False] if replace_stride_with_dilation is None else replace_stride_with_dilation
        if len(dilate) != 3:
            raise ValueError(
                f"replace_stride_with_dilation should be None or a 3-element tuple, got {replace_stride_with_dilation}"
            )
        self.groups = groups
        self.base_width = width_per_group
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], stride=2, dilate=dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], stride=2, dilate=dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], stride=2, dilate=dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        self._initialize(zero_init_residual)

    def _initialize(self, zero_init_residual: bool) -> None:
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
        if not zero_init_residual:
            return
        for m in self.modules():
            last = m.bn3 if isinstance(m, Bottleneck) else m.bn2 if isinstance(m, BasicBlock) else None
            if last is not None and last.weight is not None:
                nn.init.constant_(last.weight, 0)

    def _make_layer(self, block: Block, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> nn.Sequential:
        norm_layer = self._norm_layer
        previous_dilation = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                conv1x1(self.inplanes, planes * block.expansion, stride), norm_layer(planes * block.expansion)
            )
        options = (self.groups, self.base_width)
        layers = [block(self.inplanes, planes, stride, downsample, *options, previous_dilation, norm_layer)]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.inplanes, planes, 1, None, *options, self.dilation, norm_layer))
        return nn.Sequential(*layers)

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(athanor.flatten(self.avgpool(x), 1))

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


def _resnet(block: Block, layers: List[int], weights: Any, kwargs: Any) -> ResNet:
    if weights is not None or kwargs.pop("pretrained", False):
        raise ValueError(
            "no trained weights come with this library; make the model without them and use "
            "model.load_state_dict(athanor.load(path)) with a file of torchvision's"
        )
    return ResNet(block, layers, **kwargs)


def resnet18(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet-18; arguments as :class:`ResNet`'s."""
    return _resnet(BasicBlock, [2, 2, 2, 2], weights, kwargs)


def resnet34(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet-34; arguments as :class:`ResNet`'s."""
    return _resnet(BasicBlock, [3, 4, 6, 3], weights, kwargs)


def resnet50(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet-50; arguments as :class:`ResNet`'s."""
    return _resnet(Bottleneck, [3, 4, 6, 3], weights, kwargs)


def resnet101(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet-101; arguments as :class:`ResNet`'s."""
    return _resnet(Bottleneck, [3, 4, 23, 3], weights, kwargs)


def resnet152(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet-152; arguments as :class:`ResNet`'s."""
    return _resnet(Bottleneck, [3, 8, 36, 3], weights, kwargs)


def resnext50_32x4d(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNeXt-50 (Xie et al., CVPR 2017), 32 groups of width 4."""
    return _resnet(Bottleneck, [3, 4, 6, 3], weights, {**kwargs, "groups": 32, "width_per_group": 4})


def resnext101_32x8d(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNeXt-101, 32 groups of width 8."""
    return _resnet(Bottleneck, [3, 4, 23, 3], weights, {**kwargs, "groups": 32, "width_per_group": 8})


def resnext101_64x4d(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNeXt-101, 64 groups of width 4."""
    return _resnet(Bottleneck, [3, 4, 23, 3], weights, {**kwargs, "groups": 64, "width_per_group": 4})


def wide_resnet50_2(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """Wide ResNet-50-2 (Zagoruyko & Komodakis, 2016)."""
    return _resnet(Bottleneck, [3, 4, 6, 3], weights, {**kwargs, "width_per_group": 128})


def wide_resnet101_2(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """Wide ResNet-101-2."""
    return _resnet(Bottleneck, [3, 4, 23, 3], weights, {**kwargs, "width_per_group": 128})
