"""Calls the functions that athanor and PyTorch share with PyTorch's own samples, as functions, methods, in place and with
out=, and compares values, dtypes, strides, gradients and the classes of errors: parity.py [--op REGEX] [--verbose] [--samples N]

Runs in a Python that has PyTorch. Differences that are meant stand in KNOWN with their reason; any other fails.
"""
import argparse
import itertools
import re
import sys
import traceback
import warnings

import numpy
import torch

warnings.simplefilter("ignore")
import athanor  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

DTYPES = (torch.float64, torch.float32, torch.int64, torch.bool)
RANDOM = "its values are random"
UNINITIALIZED = "its values are not defined"
# op (regex over PyTorch's name), what differs (regex over the message), reason.
KNOWN = [
    (r"(nn\.functional\.)?(alpha_|feature_alpha_|feature_)?dropout[123]?d?|bernoulli|multinomial|normal|rand.*|uniform|cauchy|exponential|"
     r"geometric|log_normal|nn\.functional\.(rrelu|fractional_max_pool.*|gumbel_softmax|scaled_dot_product_attention)|"
     r"pca_lowrank|svd_lowrank", r"value|gradient", RANDOM),
    (r"(new_)?empty.*", r"value", UNINITIALIZED),
    (r"kthvalue|topk|mode|sort|argsort|msort|median|nanmedian", r"(result\[1\]|value of the result):",
     "which of equal elements is named: here the first (mode: the last), in PyTorch any"),
    (r"argwhere|nonzero|cholesky_solve|svd|linalg\.(cholesky|eigh|inv|lstsq|qr|solve|solve_triangular|svd|tensorinv|tensorsolve)", r"strides", "row-major here; PyTorch leaves the order of LAPACK, or of its counting"),
    (r"linalg\.eigh", r"value of the result\[1\]", "the signs of eigenvectors; the tests try what does not depend on them"),
    (r"linalg\.lstsq", r"does not require grad", "what a call leaves empty"),
    (r"linalg\.(lstsq|pinv)", r"length of the result: 4, PyTorch 2|got \(Tensor, Tensor\)", "some samples are of a function around it"),
    (r"cat|matmul|nn\.functional\.max_unpool2d", r"strides", "of inputs that are channels-last or transposed: row-major here"),
    (r"as_strided_scatter", r"gradient", "PyTorch's gradient has what was overwritten and lacks the rest: its own gradcheck refuses it"),
    (r"as_strided", r"value|refused", "the sample's storage is larger than the tensor; the conversion takes the tensor alone"),
    (r".*", r"refers to a single memory location|out tensor to have dtype|keyword argument 'out'|expects Long tensor out|"
     r"got \(Tensor, out=", "out= with a tensor that cannot take the result: refused by another class, or not offered"),
    (r"kthvalue|aminmax", r"accepted.*(refer to a single memory location|must not overlap)",
     "out= that shares memory with the input or another result: written when all results are there"),
    (r"(linalg\.)?matrix_power", r"does not require grad", "the identity does not depend on the matrix; PyTorch gives zeros"),
    (r"linspace|logspace", r"must be Number, not Tensor", "tensors of more than one element are no numbers: TypeError"),
    (r"amax|amin", r"error class IndexError", "an empty dim: IndexError, as argmax has it"),
    (r"scatter_add", r"error class IndexError", "the index is checked before the source"),
    (r"gather", r"got uint8", "indices are int32 or int64, as PyTorch's documentation says"),
    (r"square", r"not implemented for bool", "PyTorch 1.13 refuses it too"),
    (r"addr", r"dtype of the result|desired output type Bool", "bool: products and sums of bools are integers here"),
    (r"logit", r"value", "eps above 0.5, where the two bounds cross"),
    (r"roll", r"accepted", "a tensor of no dims has one element: rolling changes nothing"),
    (r"nn\.functional\.group_norm", r"Expected HxW", "no elements: an empty result"),
    (r"cov", r"fweights to have", "weights are checked by the product alone"),
    (r"scatter", r"error class IndexError", "the index is checked before the source"),
    (r"nn\.functional\.(avg_pool\dd|local_response_norm|softsign|tanhshrink|triplet_margin.*|cosine_embedding_loss|pairwise_distance)",
     r"'Long'|'Bool'|int64", "integers: averages and distances are floating; PyTorch rounds some of them and refuses others"),
    (r"nn\.functional\.(multi_head_attention_forward)", r"value|gradient", RANDOM),
    (r"nn\.functional\.ctc_loss", r"gradient", "PyTorch's gradient is that of log-softmax's input; the sample is not normalized"),
    (r"nn\.functional\.batch_norm", r"got shape \[0\]", "an input without channels"),
    (r"nn\.functional\.(softshrink|gelu)", r"error class ValueError", "an argument outside its domain is a ValueError"),
    (r"nn\.functional\.adaptive_(max|avg)_pool\dd", r"error class", "a wrong number of dims: RuntimeError, as elsewhere; a bad size: ValueError"),
    (r"nn\.functional\..*pool.*", r"result\[1\]", "which of equal elements is named"),
]
# PyTorch's samples call these through adapters of their own.
ADAPTERS = {
    "einsum": lambda tensors, equation: athanor.einsum(equation, tensors),
    "where": lambda self, condition, other: athanor.where(condition, self, other),
    "nn.functional.embedding": lambda weight, places, **k: athanor.nn.functional.embedding(places, weight, **k),
    "nn.functional.embedding_bag": lambda weight, places, **k: athanor.nn.functional.embedding_bag(places, weight, **k),
    "polygamma": lambda x, n: athanor.polygamma(n, x),
    "zero_": lambda x: athanor.zero_(x.clone()),
    "special.polygamma": lambda x, n: athanor.special.polygamma(n, x),
}


class Mismatch(Exception):
    pass


def dtype_of(t):
    return getattr(athanor, str(t).split(".")[1], None)


def convert(x):
    """PyTorch's argument as ours. Raises LookupError for what does not exist here."""
    if isinstance(x, torch.Tensor):
        if x.is_complex() or x.is_sparse or x.layout is not torch.strided or dtype_of(x.dtype) is None or x.device.type != "cpu":
            raise LookupError(f"{x.dtype}")
        source = x.detach()
        if x.dtype is torch.bfloat16:
            result = athanor.from_numpy(source.float().numpy().copy()).to(athanor.bfloat16)
        else:
            result = athanor.from_numpy(source.clone().numpy())
        return result.requires_grad_() if x.requires_grad and x.is_floating_point() else result
    if isinstance(x, torch.Size):
        return athanor.Size(x)
    if isinstance(x, torch.dtype):
        if dtype_of(x) is None:
            raise LookupError(str(x))
        return dtype_of(x)
    if isinstance(x, torch.device):
        return athanor.device(str(x))
    if isinstance(x, torch.memory_format):
        return getattr(athanor, str(x).split(".")[1])
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)(convert(i) for i in x)
    if isinstance(x, dict):
        return {k: convert(v) for k, v in x.items()}
    if isinstance(x, complex) or callable(x) and getattr(x, "__module__", "").startswith("torch") or isinstance(x, (torch.Generator, torch.layout)):
        raise LookupError(type(x).__name__)
    return x


def find(name):
    """Our function of PyTorch's dotted name, or None."""
    if name in ADAPTERS:
        return ADAPTERS[name]
    f = athanor
    for part in name.split("."):
        try:
            f = getattr(f, part)
        except AttributeError:
            return None
    # `float` is a dtype; the sample means the method.
    return getattr(athanor.Tensor, name) if isinstance(f, athanor.dtype) else f


def tensors(x):
    if isinstance(x, (torch.Tensor, athanor.Tensor)):
        return [x]
    if isinstance(x, dict):
        return [t for v in x.values() for t in tensors(v)]
    return [t for i in x for t in tensors(i)] if isinstance(x, (list, tuple)) else []


def as_numpy(t):
    t = t.detach()
    if isinstance(t, torch.Tensor) and t._is_zerotensor():
        t = torch.zeros(t.shape, dtype=t.dtype)
    if str(t.dtype).endswith("bfloat16"):
        t = t.float()
    return t.numpy()


def steps(t):
    """Strides, where they say something: of a tensor with elements, along dims with more than one."""
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else []


def compare_tensors(ours, theirs, what, dtype):
    if tuple(ours.shape) != tuple(theirs.shape):
        raise Mismatch(f"shape of {what}: {tuple(ours.shape)}, PyTorch {tuple(theirs.shape)}")
    if str(ours.dtype) != str(theirs.dtype):
        raise Mismatch(f"dtype of {what}: {ours.dtype}, PyTorch {theirs.dtype}")
    if what.startswith("the result") and steps(ours) != steps(theirs):
        raise Mismatch(f"strides of {what}: {ours.stride()}, PyTorch {theirs.stride()}")
    tolerance = {torch.float64: 1e-7, torch.float32: 1e-4}.get(theirs.dtype, 2e-2 if theirs.is_floating_point() else 0)
    a, b = as_numpy(ours), as_numpy(theirs)
    if not numpy.allclose(a, b, tolerance, tolerance, equal_nan=True):
        raise Mismatch(f"value of {what}: {a.ravel()[:6]}, PyTorch {b.ravel()[:6]}")


def compare_results(ours, theirs, dtype, what="the result"):
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, athanor.Tensor):
            raise Mismatch(f"type of {what}: {type(ours).__name__}, PyTorch Tensor")
        compare_tensors(ours, theirs, what, dtype)
    elif isinstance(theirs, (list, tuple)):
        if not isinstance(ours, (list, tuple)) or len(ours) != len(theirs):
            raise Mismatch(f"length of {what}: {len(ours) if hasattr(ours, '__len__') else type(ours)}, PyTorch {len(theirs)}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            compare_results(a, b, dtype, f"{what}[{i}]")
    elif isinstance(theirs, (bool, int, float)) and ours != theirs and not (ours != ours and theirs != theirs):
        if not isinstance(theirs, float) or abs(ours - theirs) > 1e-6 * abs(theirs):
            raise Mismatch(f"value of {what}: {ours}, PyTorch {theirs}")


def compare_gradients(ours, theirs, our_inputs, their_inputs, dtype):
    pairs = [(a, b) for a, b in zip(our_inputs, their_inputs) if b.requires_grad]
    outputs = [(a, b) for a, b in zip(tensors(ours), tensors(theirs)) if b.requires_grad]
    if not pairs or not outputs:
        return
    for a, b in outputs:
        if not a.requires_grad:
            raise Mismatch("gradient: the result does not require grad, PyTorch's does")
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(b.shape, dtype=b.dtype, generator=generator) for _, b in outputs]
    expected = torch.autograd.grad([b for _, b in outputs], [b for _, b in pairs], weights, allow_unused=True)
    got = athanor.autograd.grad([a for a, _ in outputs], [a for a, _ in pairs], [convert(w) for w in weights], allow_unused=True)
    for i, (a, b) in enumerate(zip(got, expected)):
        if b is None or a is None:
            zero = a if b is None else b
            if zero is not None and bool((zero != 0).any()):
                raise Mismatch(f"gradient {i}: {'none' if a is None else 'one'}, PyTorch {'none' if b is None else 'one'}")
        else:
            compare_tensors(a, b, f"gradient {i}", dtype)


def call(f, args, keywords):
    try:
        return f(*args, **keywords), None
    except Exception as error:  # noqa: BLE001  the class is what is compared
        return None, error


def compare_sample(op, ours, sample, dtype, counts):
    args = (sample.input, *sample.args)
    try:
        our_args, our_keywords = convert(tuple(args)), convert(sample.kwargs)
    except LookupError:
        counts["not expressible"] += 1
        return
    theirs, their_error = call(op.op, args, sample.kwargs)
    if their_error is not None:
        return
    result, error = call(ours, our_args, our_keywords)
    if error is not None:
        raise Mismatch(f"refused: {type(error).__name__}: {str(error)[:160]}")
    counts["calls"] += 1
    compare_results(result, theirs, dtype)
    if dtype.is_floating_point and op.supports_autograd:
        compare_gradients(result, theirs, tensors(our_args) + tensors(our_keywords), tensors(args) + tensors(sample.kwargs), dtype)
        counts["gradients"] += 1


def compare_errors(op, ours, counts):
    if op.error_inputs_func is None:
        return
    for error_input in op.error_inputs("cpu"):
        sample = error_input.sample_input
        args = (sample.input, *sample.args)
        try:
            our_args, our_keywords = convert(tuple(args)), convert(sample.kwargs)
        except (LookupError, TypeError, ValueError):
            continue  # what NumPy cannot carry over either
        _, their_error = call(op.op, args, sample.kwargs)
        if their_error is None:
            continue
        _, error = call(ours, our_args, our_keywords)
        counts["errors"] += 1
        if error is None:
            raise Mismatch(f"accepted what PyTorch refuses with {type(their_error).__name__}: {str(their_error)[:120]}")
        if not isinstance(error, type(their_error)) and not isinstance(their_error, type(error)):
            raise Mismatch(f"error class {type(error).__name__} ({str(error)[:80]}), PyTorch {type(their_error).__name__} ({str(their_error)[:80]})")


def variants(op):
    """What else an op is called as: (how, PyTorch's function, ours). Ours is None where it is missing."""
    if "." not in op.name and not op.variant_test_name and not op.name.endswith("_"):
        for how, theirs, name in (("method", op.method_variant, op.name), ("in place", op.inplace_variant, op.name + "_")):
            if theirs is not None:
                yield how, theirs, getattr(athanor.Tensor, name, None)
    if op.supports_out and op.name not in ADAPTERS:
        yield "out=", op.op, find(op.name)


def compare_variant(op, how, theirs, ours, sample, dtype, counts):
    args, keywords = (sample.input, *sample.args), dict(sample.kwargs)
    if how == "out=":
        result, error = call(theirs, args, keywords)
        if error is not None or not tensors(result) or len(tensors(result)) != len([result] if isinstance(result, torch.Tensor) else result):
            return
        keywords["out"] = torch.empty_like(result) if isinstance(result, torch.Tensor) else tuple(torch.empty_like(r) for r in result)
    elif not isinstance(sample.input, torch.Tensor) or how == "in place" and sample.broadcasts_input:
        return
    try:
        our_args, our_keywords = convert(args), convert(keywords)
    except LookupError:
        return
    if how == "in place":
        args = (sample.input.clone(), *args[1:])
    expected, their_error = call(theirs, args, keywords)
    result, error = call(ours, our_args, our_keywords)
    counts["variants"] += 1
    if their_error is not None:
        if error is None:
            raise Mismatch(f"{how}: accepted what PyTorch refuses with {type(their_error).__name__}: {str(their_error)[:120]}")
        return
    if error is not None:
        raise Mismatch(f"{how}: refused: {type(error).__name__}: {str(error)[:160]}")
    compare_results(result, expected, dtype)
    if how == "in place" and result is not our_args[0] or how == "out=" and isinstance(expected, torch.Tensor) and result is not our_keywords["out"]:
        raise Mismatch(f"{how}: another tensor than the one that was written")


def on_a_copy(function):
    return lambda first, *args, **keywords: function(first.clone(), *args, **keywords)


def known(name, message):
    return next((reason for op, what, reason in KNOWN if re.fullmatch(op, name) and re.search(what, message)), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--op", default="")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    counts = dict.fromkeys(("ops", "calls", "variants", "gradients", "errors", "not expressible", "known", "not here"), 0)
    failures = {}
    for op in op_db:
        if options.op and not re.search(options.op, op.name):
            continue
        ours = getattr(athanor.Tensor, op.name + "_") if op.variant_test_name == "in_place" else find(op.name)
        if ours is None:
            counts["not here"] += 1
            continue
        if op.name.endswith("_") and op.variant_test_name != "in_place":
            ours = on_a_copy(ours)  # as PyTorch's entry does
        counts["ops"] += 1
        also = [] if op.variant_test_name == "in_place" else list(variants(op))
        if any(f is None for _, _, f in also):
            failures.setdefault(op.name, []).append("missing: " + ", ".join(how for how, _, f in also if f is None))
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        for dtype in DTYPES:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            samples = op.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point and op.supports_autograd)
            for i, sample in enumerate(itertools.islice(samples, options.samples)):
                try:
                    compare_sample(op, ours, sample, dtype, counts)
                except Mismatch as m:
                    message = f"{dtype} sample {i}: {m}"
                    if known(op.name, str(m)):
                        counts["known"] += 1
                    else:
                        failures.setdefault(name, []).append(message + (f"\n      {sample.summary()}" if options.verbose else ""))
                except Exception as error:  # noqa: BLE001
                    if known(op.name, str(error)):
                        counts["known"] += 1
                        continue
                    failures.setdefault(name, []).append(f"{dtype} sample {i}: {traceback.format_exc(limit=-2).strip()[-400:]}")
            for sample in itertools.islice(op.sample_inputs("cpu", dtype), options.samples // 2):
                for how, theirs, mine in also:
                    try:
                        if mine is not None:
                            compare_variant(op, how, theirs, mine, sample, dtype, counts)
                    except Mismatch as m:
                        if known(op.name, str(m)):
                            counts["known"] += 1
                        else:
                            failures.setdefault(name, []).append(f"{dtype}: {m}" + (f"\n      {sample.summary()}" if options.verbose else ""))
        try:
            compare_errors(op, ours, counts)
        except Mismatch as m:
            if known(op.name, str(m)):
                counts["known"] += 1
            else:
                failures.setdefault(name, []).append(str(m))
    for name, messages in failures.items():
        print(f"{name}: {len(messages)} differences")
        for m in messages[:4 if options.verbose else 2]:
            print(f"   {m}")
    print(", ".join(f"{v} {k}" for k, v in counts.items()), f"; {len(failures)} ops differ", sep="")
    return 1 if failures or not counts["calls"] else 0


if __name__ == "__main__":
    sys.exit(main())
