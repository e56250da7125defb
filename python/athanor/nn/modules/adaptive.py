"""Adaptive softmax (Grave et al., "Efficient softmax approximation for GPUs", 2016)."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import athanor
from athanor._C import Tensor

from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Softmax over many classes of very different frequency: the frequent ones in the head, the others in clusters of
    fewer features. cutoffs: where clusters begin, rising; classes are numbered by falling frequency.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if len(cutoffs) == 0:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(cutoffs)
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or len(set(cutoffs)) != len(cutoffs)
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        where = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **where), Linear(hidden, classes, bias=False, **where)
                )
            )

    def reset_parameters(self) -> None:
        """Draws first values."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster.children():
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """input (N, in_features) and target (N), or both without N. Gives the log-probability of every target (output)
        and the mean of their negatives (loss)."""
        if input_.dim() == 1 and target_.dim() == 0:
            input, target = input_.unsqueeze(0), target_.unsqueeze(0)
        elif input_.dim() == 2 and target_.dim() == 1:
            input, target = input_, target_
            if input.size(0) != target.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
        else:
            raise RuntimeError(
                "0D or 1D target tensor expected with an input of one dim more, got shapes "
                f"{tuple(input_.shape)} and {tuple(target_.shape)}"
            )
        in_head = target.clone()
        output = athanor.zeros(target.size(0), dtype=input.dtype, device=input.device)
        found = int(((target >= 0) & (target < self.shortlist_size)).sum())
        for i in range(self.n_clusters):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            found += rows.numel()
            in_head.index_fill_(0, rows, self.shortlist_size + i)
            own = (target.index_select(0, rows) - low).unsqueeze(1)
            local = self._cluster(i, input.index_select(0, rows)).gather(1, own).squeeze(1)
            output = output.index_copy(0, rows, local.to(output.dtype))
        if found != target.size(0):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(target.min())}, {int(target.max())}] were found. "
            )
        head = self.head(input).log_softmax(1)
        output = output + head.gather(1, in_head.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if target_.dim() == 0 else output, loss)

    def _cluster(self, i: int, input: Tensor) -> Tensor:
        return self.tail[i](input).log_softmax(1)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = head_output.log_softmax(1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            place = self.shortlist_size + i
            parts.append(self._cluster(i, input) + head[:, place : place + 1])
        return athanor.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of every row of (N, in_features)."""
        head_output = self.head(input)
        output = head_output.argmax(1)
        rows = (output >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel() == 0:
            return output
        likeliest = self._get_full_log_prob(input.index_select(0, rows), head_output.index_select(0, rows)).argmax(1)
        return output.index_copy(0, rows, likeliest)
