"""Sequences of different lengths: padded to one tensor, or packed without padding for the recurrent layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Optional, Union

import athanor
from athanor._C import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpad_sequence",
    "pack_sequence",
    "unpack_sequence",
]


class _PackedFields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Optional[Tensor]
    unsorted_indices: Optional[Tensor]


class PackedSequence(_PackedFields):
    """Sequences step by step: data (sum of lengths, *) holds all first elements, then all second ones, …, of the
    sequences by falling length; batch_sizes says how many there are at each step. sorted_indices: the order by length;
    unsorted_indices: the way back. Made by pack_padded_sequence and pack_sequence.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Optional[Tensor] = None,
        sorted_indices: Optional[Tensor] = None,
        unsorted_indices: Optional[Tensor] = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise TypeError("PackedSequence: expected data and batch_sizes")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually: "
                f"they are made by pack_sequence and pack_padded_sequence; got batch_sizes on {batch_sizes.device}"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with data.to(*args, **kwargs); itself if nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to("cuda", *args, **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to("cpu", *args, **kwargs)

    def double(self) -> PackedSequence:
        return self.to(athanor.float64)

    def float(self) -> PackedSequence:
        return self.to(athanor.float32)

    def half(self) -> PackedSequence:
        return self.to(athanor.float16)

    def long(self) -> PackedSequence:
        return self.to(athanor.int64)

    def int(self) -> PackedSequence:
        return self.to(athanor.int32)

    def short(self) -> PackedSequence:
        return self.to(athanor.int16)

    def char(self) -> PackedSequence:
        return self.to(athanor.int8)

    def byte(self) -> PackedSequence:
        return self.to(athanor.uint8)

    def pin_memory(self) -> PackedSequence:
        return type(self)(self.data.pin_memory(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def is_pinned(self) -> bool:
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda


def invert_permutation(permutation: Optional[Tensor]) -> Optional[Tensor]:
    """The permutation that undoes another one."""
    if permutation is None:
        return None
    order = athanor.arange(permutation.numel(), device=permutation.device)
    return athanor.empty_like(permutation).scatter_(0, permutation, order.to(permutation.dtype))


def _as_list(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: Union[Tensor, list], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Padded sequences (T, N, *), (N, T, *) with batch_first, of given lengths (on the host), packed. enforce_sorted:
    they come by falling length already. RuntimeError if they do not, or for a length that is not positive.
    """
    if not isinstance(lengths, Tensor):
        lengths = athanor.tensor(lengths, dtype=athanor.int64)
    if lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} "
            f"{lengths.dtype} tensor"
        )
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    counts = _as_list(lengths)
    if batch_first:
        input = input.transpose(0, 1)
    if not counts or input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(counts) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size={input.size(1)})"
        )
    if min(counts) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if any(a < b for a, b in zip(counts, counts[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True; pass "
            f"`enforce_sorted=False` to have them sorted. Got {counts}"
        )
    if counts[0] > input.size(0):
        raise RuntimeError(
            f"pack_padded_sequence: expected lengths of at most {input.size(0)}, the padded length, got {counts[0]}"
        )
    steps, sizes, start = [], [], 0
    # Runs of steps that as many sequences have.
    for batch in range(len(counts), 0, -1):
        end = counts[batch - 1]
        if end > start:
            steps.append(input[start:end, :batch].reshape(-1, *input.shape[2:]))
            sizes += [batch] * (end - start)
            start = end
    return PackedSequence(athanor.cat(steps), athanor.tensor(sizes, dtype=athanor.int64), order, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: Optional[int] = None
) -> tuple[Tensor, Tensor]:
    """The sequences padded, (T, N, *) or (N, T, *), and their lengths. total_length: T, at least the longest length."""
    data, batch_sizes, _, back = sequence
    sizes = _as_list(batch_sizes)
    longest = len(sizes)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {longest}"
            )
        longest = total_length
    batch = sizes[0]
    # Place i of the padded steps, flattened, for every row of data.
    places = athanor.cat([athanor.arange(t * batch, t * batch + n) for t, n in enumerate(sizes)]).to(data.device)
    padded = athanor.full((longest * batch, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    padded = padded.index_copy(0, places, data).reshape(longest, batch, *data.shape[1:])
    lengths = athanor.tensor([sum(1 for n in sizes if n > i) for i in range(batch)], dtype=athanor.int64)
    if back is not None:
        padded = padded.index_select(1, back)
        lengths = lengths[back.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (L, *) of different lengths in one tensor (T, N, *), (N, T, *) with batch_first. padding_side: "right"
    or "left"."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be 'left' or 'right', got {padding_side!r}")
    sequences = list(sequences.unbind(0)) if isinstance(sequences, Tensor) else list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    longest = max(s.size(0) for s in sequences)
    columns = []
    for s in sequences:
        missing = longest - s.size(0)
        if missing:
            blank = s.new_full((missing, *s.shape[1:]), padding_value)
            s = athanor.cat([s, blank] if padding_side == "right" else [blank, s])
        columns.append(s)
    return athanor.stack(columns, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Padded sequences cut to their lengths."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[:n] for s, n in zip(padded_sequences, _as_list(lengths))]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (L, *) of different lengths, packed. enforce_sorted: they come by falling length already."""
    lengths = athanor.tensor([s.size(0) for s in sequences], dtype=athanor.int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence, each of its own length."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
