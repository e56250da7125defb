"""Pipeline parallelism in one process: stages on devices of their own that work at once on different micro-batches."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

import athanor
from athanor import Tensor
from athanor._C import _distributed as _core
from athanor.autograd import Function

from ..modules.container import Sequential
from ..modules.module import Module

_SCHEDULES = ("fill-drain", "1F1B")
_CHECKPOINTS = ("never", "except_last", "always")


class PipelineStep(NamedTuple):
    """A stage's forward or backward of a micro-batch."""

    micro_batch: int
    backward: bool


def pipeline_steps(schedule: str, stages: int, micro_batches: int) -> List[List[PipelineStep]]:
    """For each stage, what it does, in order. Raises ValueError for numbers that are not positive.

    "fill-drain": all forwards, then all backwards. "1F1B": backward as early as possible, so that a stage keeps the
    activations of no more micro-batches than there are stages from it on.
    """
    _check_choice("schedule", schedule, _SCHEDULES)
    table = _core.pipeline_steps(schedule == "1F1B", stages, micro_batches)
    return [[PipelineStep(*step) for step in steps] for steps in table]


def _check_choice(what: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"Pipeline: {what} is {value!r}, expected one of {', '.join(map(repr, choices))}")


class Pipeline(Module):
    """Cuts a network into stages, moves them to their devices, and a batch into micro-batches that pass through them. One
    thread enqueues everything; the devices' queues do the rest. On the host alone it computes the same, one stage after
    the other.

        pipe = Pipeline(nn.Sequential(...), devices=["cuda:0", "cuda:1"], chunks=8, schedule="1F1B")
        loss = pipe.train_step(x, target, nn.functional.cross_entropy)
        optimizer.step()                    # or: pipe(x), and backward() through it

    Input and output of every stage is one tensor whose first dimension is the batch. Layers that look at the whole batch
    see a micro-batch instead: BatchNorm normalizes each by its own statistics, and updates its running ones once per
    micro-batch (twice under checkpointing).

    Args:
        layers: a Sequential, whose layers keep their names, or a list of modules, one stage each.
        devices: one per stage; all virtual devices if not given.
        balance: how many layers of a Sequential each stage has; equal numbers if not given.
        chunks: micro-batches a batch is cut into, fewer if it is too small.
        split_size: examples in a micro-batch, instead of chunks.
        checkpoint: "never", "except_last" or "always": which micro-batches a stage computes again in backward instead of
            keeping what is inside it; or a list of these, one per stage.
        schedule: of train_step: "fill-drain" or "1F1B", see pipeline_steps.

    Raises ValueError if stages, balance and devices do not fit each other, a number is not positive, or stages on different
    devices share a parameter or a buffer: it can lie on one device only.
    """

    def __init__(
        self,
        layers: Union[Sequential, Sequence[Module]],
        devices: Optional[Sequence[Any]] = None,
        balance: Optional[Sequence[int]] = None,
        chunks: int = 1,
        split_size: Optional[int] = None,
        checkpoint: Union[str, Sequence[str]] = "never",
        schedule: str = "fill-drain",
    ) -> None:
        super().__init__()
        self.devices = [athanor.device(d) for d in (devices or _core.all_devices())]
        if chunks <= 0:
            raise ValueError(f"Pipeline: chunks must be positive, got {chunks}")
        if split_size is not None and split_size <= 0:
            raise ValueError(f"Pipeline: split_size must be positive, got {split_size}")
        _check_choice("schedule", schedule, _SCHEDULES)
        self.chunks, self.split_size, self.schedule = chunks, split_size, schedule
        if isinstance(layers, Sequential):
            named = dict(layers.named_children())
            sizes = self._sizes(len(named), balance)
        else:
            named = {str(i): stage for i, stage in enumerate(layers)}
            if not named or len(named) != len(self.devices):
                raise ValueError(f"Pipeline: {len(named)} stages for {len(self.devices)} devices")
            if balance is not None:
                raise ValueError("Pipeline: balance is for a Sequential, not for a list of stages")
            sizes = [1] * len(named)
        checkpoints = [checkpoint] * len(sizes) if isinstance(checkpoint, str) else list(checkpoint)
        if len(checkpoints) != len(sizes):
            raise ValueError(f"Pipeline: checkpoint says how for {len(checkpoints)} stages, there are {len(sizes)}")
        for how in checkpoints:
            _check_choice("checkpoint", how, _CHECKPOINTS)
        self.checkpoint = checkpoints
        for name, layer in named.items():
            self.add_module(name, layer)
        self._names: List[List[str]] = []
        names = iter(named)
        for size in sizes:
            self._names.append([next(names) for _ in range(size)])
        self._check_sharing()
        for stage, device in zip(self._names, self.devices):
            for name in stage:
                self._modules[name].to(device)

    def _check_sharing(self) -> None:
        seen: Dict[int, Any] = {}
        for stage, layers in enumerate(self._names):
            for layer in layers:
                module = self._modules[layer]
                for what, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                    for name, tensor in named:
                        other, earlier = seen.setdefault(id(tensor), (f"{layer}.{name}", stage))
                        if self.devices[earlier] != self.devices[stage]:
                            raise ValueError(
                                f"Pipeline: {what} '{other}' of stage {earlier} on {self.devices[earlier]} is {what} "
                                f"'{layer}.{name}' of stage {stage} on {self.devices[stage]} as well, and can lie on one "
                                "device only. Put what shares it into one stage, or give each its own and add up their "
                                "gradients")

    def _sizes(self, count: int, balance: Optional[Sequence[int]]) -> List[int]:
        stages = len(self.devices)
        sizes = [(count + i) // stages for i in range(stages)] if balance is None else list(balance)
        if any(n <= 0 for n in sizes):
            raise ValueError(f"Pipeline: every stage needs a layer, got balance {sizes} for {count} layers on {stages} "
                             "devices")
        if sum(sizes) != count:
            raise ValueError(f"Pipeline: balance {sizes} is for {sum(sizes)} layers, there are {count}")
        if len(sizes) != stages:
            raise ValueError(f"Pipeline: balance {sizes} is for {len(sizes)} stages, there are {stages} devices")
        return sizes

    def stage(self, i: int) -> Sequential:
        """The layers of a stage."""
        return Sequential(OrderedDict((name, self._modules[name]) for name in self._names[i]))

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self._names)

    def extra_repr(self) -> str:
        cut = f"split_size={self.split_size}" if self.split_size is not None else f"chunks={self.chunks}"
        return f"devices={[str(d) for d in self.devices]}, {cut}, schedule={self.schedule!r}"

    def forward(self, input: Tensor) -> Tensor:
        """The result on the last device, recorded for backward."""
        parts = self._micro_batches(input, self.devices[0], "the input")
        outputs = []
        for m, part in enumerate(parts):
            x = part
            for s, device in enumerate(self.devices):
                x = self._run_stage(s, x.to(device), m + 1 == len(parts))
            if x.dim() == 0 or x.size(0) != part.size(0):
                raise RuntimeError(f"Pipeline: the last stage made a tensor of shape {tuple(x.shape)} of a micro-batch of "
                                   f"{part.size(0)}; its first dimension must be the batch")
            outputs.append(x)
        return outputs[0] if len(outputs) == 1 else athanor.cat(outputs, 0)

    def train_step(self, input: Tensor, target: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Forward and backward by the schedule: gradients are added to the parameters'. `loss` gets output and target of
        a micro-batch on the last device and returns the mean over it; what is returned, on the last device and without a
        graph, is the mean over the batch. Raises ValueError if batch sizes differ, RuntimeError if a loss is no scalar. If
        it raises, errors of `loss` and of layers included, gradients of the micro-batches that came through are left in
        the parameters': zero them before the next step.
        """
        with athanor.enable_grad():
            return _Run(self, input, target, loss).go()

    def _micro_batches(self, batch: Tensor, device: Any, what: str) -> List[Tensor]:
        # All of them travel before any work is enqueued: a copy from the host waits for what its queue has to do already.
        if batch.dim() == 0:
            raise RuntimeError(f"Pipeline: {what} needs a batch as its first dimension, got a 0-d tensor")
        size = batch.size(0)
        if size == 0:
            raise ValueError(f"Pipeline: {what} of shape {tuple(batch.shape)} is an empty batch")
        if self.split_size is not None and self.split_size > size:
            raise ValueError(f"Pipeline: split_size {self.split_size} is beyond the batch of {size}")
        parts = batch.chunk(self.chunks) if self.split_size is None else batch.split(self.split_size)
        return [part.to(device) for part in parts]

    def _run_stage(self, stage: int, x: Tensor, last_micro_batch: bool) -> Tensor:
        layers = [self._modules[name] for name in self._names[stage]]

        def run(x: Tensor) -> Tensor:
            for layer in layers:
                x = layer(x)
            return x

        how = self.checkpoint[stage]
        again = how == "always" or (how == "except_last" and not last_micro_batch)
        if not again or not athanor.is_grad_enabled():
            return run(x)
        from athanor.utils.checkpoint import checkpoint

        # A first layer in place must not write what is kept.
        return checkpoint(lambda x: run(x.clone()), x)


class _Entrance(Function):
    """Where a stage's graph begins: keeps the gradient of the stage's input, on the stage's device."""

    @staticmethod
    def forward(ctx: Any, run: _Run, s: int, m: int, _: Tensor) -> Tensor:
        ctx.place = run.gradients[s], m
        return run.moved(s, m)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        gradients, m = ctx.place
        _core.restore_layout(gradient)
        gradients[m] = gradient
        return None, None, None, None


class _Run:
    """One train_step. Every stage's graph is its own, and whatever a stage waits for, copies from its neighbours included,
    is enqueued with the step that needs it: a queue is in order, so a copy that came sooner would hold back other steps.
    """

    def __init__(self, pipeline: Pipeline, input: Tensor, target: Tensor, loss: Callable) -> None:
        self.pipeline, self.loss, self.stages = pipeline, loss, pipeline.stages
        self.inputs = pipeline._micro_batches(input, pipeline.devices[0], "the input")
        if target.dim() == 0 or target.size(0) != input.size(0):
            raise ValueError(f"Pipeline.train_step: a batch of {input.size(0)} with a target of shape "
                             f"{tuple(target.shape)}")
        self.targets = pipeline._micro_batches(target, pipeline.devices[-1], "the target")
        self.total = input.size(0)
        self.wanted = athanor.empty((0,), requires_grad=True)
        # Of each stage and micro-batch: 1 after forward, 2 after backward.
        self.done = [[0] * len(self.inputs) for _ in range(self.stages)]
        # Of each stage, by micro-batch: the output until its backward, the loss's share in the last stage; the gradient of
        # its input until the stage before has it.
        self.ends: List[Dict[int, Tensor]] = [{} for _ in range(self.stages)]
        self.gradients: List[Dict[int, Tensor]] = [{} for _ in range(self.stages)]
        self.sum: Any = None

    def go(self) -> Tensor:
        left = [list(reversed(s)) for s in pipeline_steps(self.pipeline.schedule, self.stages, len(self.inputs))]
        while any(left):
            # In an order that has each step after what it needs, and the stages in turns.
            for s, steps in enumerate(left):
                if steps and self.is_ready(s, steps[-1]):
                    m, backward = steps.pop()
                    (self.backward if backward else self.forward)(s, m)
                    self.done[s][m] += 1
        return self.sum

    def is_ready(self, s: int, step: PipelineStep) -> bool:
        m = step.micro_batch
        if not step.backward:
            return s == 0 or self.done[s - 1][m] > 0
        return self.done[s][m] == 1 if s + 1 == self.stages else self.done[s + 1][m] == 2

    def moved(self, s: int, m: int) -> Tensor:
        """The output of the stage before, on this one's device. A copy even on the same device: the stage may begin with
        an in-place layer, which must not write what the stage before has kept."""
        source, device = self.ends[s - 1][m], self.pipeline.devices[s]
        return source.detach().clone() if source.device == device else source.detach().to(device)

    def entrance(self, s: int, m: int) -> Tensor:
        if s == 0:
            return self.inputs[m].detach()
        if not self.ends[s - 1][m].requires_grad:
            return self.moved(s, m)
        return _Entrance.apply(self, s, m, self.wanted)

    def forward(self, s: int, m: int) -> None:
        y = self.pipeline._run_stage(s, self.entrance(s, m), m + 1 == len(self.inputs))
        if s + 1 == self.stages:
            y = self.loss(y, self.targets[m])
            if y.dim() != 0:
                raise RuntimeError(f"Pipeline.train_step: the loss must be a scalar, got shape {tuple(y.shape)}")
            y = y * (self.inputs[m].size(0) / self.total)
            self.sum = y.detach() if self.sum is None else self.sum + y.detach()
        # What a neighbour is going to copy: a hidden layout is restored now, since it would be behind the steps that this
        # stage's queue is given before the neighbour's.
        _core.restore_layout(y)
        self.ends[s][m] = y

    def backward(self, s: int, m: int) -> None:
        y = self.ends[s].pop(m)
        if not y.requires_grad:
            return
        if s + 1 == self.stages:
            y.backward()
            return
        gradient = self.gradients[s + 1].pop(m, None)
        if gradient is not None:
            y.backward(gradient.to(self.pipeline.devices[s]))
