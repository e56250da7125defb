"""Settings of CUDA's libraries, which are not used."""
from types import SimpleNamespace

matmul = SimpleNamespace(
    allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True
)


def is_built() -> bool:
    """Always false."""
    return False
