"""Averaging, whole or in half precision. The state is a process group, None for the default one."""
from __future__ import annotations

from typing import Any, Callable, Optional

from ...._C import _distributed as _core
from ...._C import bfloat16, float16
from ...._C._distributed import GradBucket, ProcessGroup
from ....futures import Future


def _future(result: Any) -> Future:
    return Future._of(result.wait, result.done)


def allreduce_hook(process_group: Optional[ProcessGroup], bucket: GradBucket) -> Future:
    """The average, as without a hook."""
    return _future(_core.allreduce_hook(process_group, bucket))


def fp16_compress_hook(process_group: Optional[ProcessGroup], bucket: GradBucket) -> Future:
    """The average of gradients rounded to float16: half the bytes of float32."""
    return _future(_core.fp16_compress_hook(process_group, bucket))


def bf16_compress_hook(process_group: Optional[ProcessGroup], bucket: GradBucket) -> Future:
    """The average of gradients rounded to bfloat16, which has float32's range."""
    return _future(_core.bf16_compress_hook(process_group, bucket))


def _wrapped(hook: Callable[[Any, GradBucket], Future], dtype: Any) -> Callable[[Any, GradBucket], Future]:
    def compressed(state: Any, bucket: GradBucket) -> Future:
        whole = bucket.buffer()
        bucket.set_buffer(whole.to(dtype))
        future = hook(state, bucket)

        def restored(done: Future) -> Any:
            value = done.value()
            return whole.copy_(value[0] if isinstance(value, (list, tuple)) else value)

        return future.then(restored)

    return compressed


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Callable[[Any, GradBucket], Future]:
    """Lets another hook communicate in float16."""
    return _wrapped(hook, float16)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Callable[[Any, GradBucket], Future]:
    """Lets another hook communicate in bfloat16."""
    return _wrapped(hook, bfloat16)
