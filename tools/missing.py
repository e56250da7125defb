#!/usr/bin/env python3
"""Writes docs/not_here.md: what PyTorch's reference has and this library has not, and why.

    tools/missing.py            rewrites the page
    tools/missing.py --check    exit status 1 if the page is not what would be written, or a name lacks its reason

tools/pytorch_names.txt has the names of PyTorch's reference, one a line. A name is here if a public header declares it
in the place where PyTorch has it (tools/public_names.py). What is not here needs a line in REASONS.
"""
import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import public_names  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "not_here.md"

# (pattern of names, why). The first that fits counts.
REASONS = [
    (r"torch\.fft\..*|torch\.Tensor\.i?stft|torch\.i?stft",
     "Fourier transforms need complex numbers, which are not planned"),
    (r"torch\.(Tensor\.)?(H|mH|angle|cdouble|cfloat|chalf|complex|polar|conj|conj_physical_?|imag|real|is_complex|"
     r"is_conj|isreal|resolve_conj|resolve_neg|is_neg|view_as_complex|view_as_real|view_as_complex_copy|"
     r"view_as_real_copy)",
     "Complex dtypes are not planned"),
    (r"torch\.(Tensor\.)?(.*quantize.*|fake_.*|q_.*|qscheme|int_repr|is_quantized)",
     "Quantized tensors are not planned"),
    (r"torch\.(Tensor\.)?(.*sparse.*|coalesce|col_indices|crow_indices|indices|values|dense_dim|is_coalesced|to_dense|hspmm|"
     r"sspaddmm|smm|indices_copy|values_copy|col_indices_copy|crow_indices_copy)|torch\.optim\.SparseAdam",
     "Sparse tensors are not planned"),
    (r"torch\.Tensor\.(ipu|xpu|mtia|is_ipu|is_xla|is_xpu|is_mps|is_meta|to_mkldnn|to_padded_tensor)",
     "Device types and layouts that this library does not have"),
    (r"torch\.(Tensor\.)?(\w+_copy|narrow_copy)",
     "Copies of views that compilers of graphs need; view(...).clone() is the same"),
    (r"torch\.(as_tensor|asarray|from_numpy|frombuffer|is_nonzero|result_type)|"
     r"torch\.Tensor\.(as_subclass|bfloat16|bool|byte|char|double|float|half|int|long|short|ndim|shape|type|tolist|"
     r"nelement|new_tensor|numpy|get_device|index_put|is_set_to|untyped_storage)",
     "Python's way of writing what C++ writes otherwise: to(kByte), dim, sizes, scalar_type, from_blob"),
    (r"torch\.(is_grad_enabled|is_inference_mode_enabled|get_num_threads|set_num_threads|get_num_interop_threads|"
     r"set_num_interop_threads|set_flush_denormal)",
     "Settings of the process: here under other headers (GradMode, base/parallel.h), or without an effect"),
    (r"torch\.Tensor\.(pin_memory|is_pinned|record_stream)",
     "Memory of CUDA devices: with the CUDA backend"),
    (r"torch\.(Tensor\.)?(svd|geqrf|orgqr|ormqr|pinverse|lu|lu_solve|lu_unpack|cholesky_inverse|cholesky_solve|"
     r"triangular_solve|matrix_exp|pca_lowrank|svd_lowrank)|torch\.linalg\..*",
     "Linear algebra beyond solve, inv, det, slogdet, cholesky, norms, matrix_power, multi_dot, cross: asked for by "
     "nothing yet"),
    (r"torch\.special\..*|torch\.(Tensor\.)?(i0_?|igammac?_?|mvlgamma_?|frexp)",
     "Special functions beyond those of the tensor methods: asked for by nothing yet"),
    (r"torch\.from_file|torch\.Tensor\.grad_dtype|torch\.(Tensor\.)?(cov|corrcoef|gradient|quantile|nanquantile|histogram|histogramdd|nonzero_static|range|poisson|"
     r"segment_reduce|unravel_index|hash_tensor)",
     "Asked for by nothing yet"),
    (r"torch\.nn\.(RNNBase|RNNCellBase)",
     "Bases of recurrent layers: here as in libtorch, nn::detail::RNNImplBase and RNNCellImplBase"),
    (r"torch\.nn\.(Lazy\w+|LinearCrossEntropy\w+)|torch\.nn\.functional\.(linear_cross_entropy|scaled_\w+|"
     r"grouped_mm)",
     "Layers that learn their sizes from the first input, and products in eight bits: not planned"),
    (r"torch\.trapz|torch\.nn\.(Container|NLLLoss2d|UpsamplingBilinear2d|UpsamplingNearest2d)|"
     r"torch\.nn\.functional\.upsample.*|torch\.nn\.utils\.clip_grad_norm",
     "Old names of trapezoid, Module, NLLLoss, Upsample, interpolate, clip_grad_norm_"),
    (r"torch\.nn\.functional\.(conv_tbc|native_channel_shuffle)",
     "Parts of PyTorch's own implementation"),
    (r"torch\.nn\.utils\.(parametrizations|parametrize)",
     "weight_norm and spectral_norm are functions here, in nn/reparametrize.h; orthogonal weights, and parametrizations "
     "by modules of one's own, are in Python only"),
    (r"torch\.nn\.utils\..*",
     "Fusion of layers, their memory formats, calls with other parameters: asked for by nothing yet in C++"),
    (r"torch\.Tensor\.(apply_|map_|map2_|share_memory_)",
     "A function of Python's for every element, memory that Python's processes share: C++ has loops and threads"),
    (r"torch\.autograd\.(no_grad|enable_grad|inference_mode|set_grad_enabled|detect_anomaly|set_detect_anomaly)",
     "Modes: guards in C++, NoGradGuard, AutoGradMode, InferenceMode, autograd::DetectAnomalyGuard"),
    (r"torch\.autograd\.(NestedIOFunction|Variable|variable|enforce_grad_layout_policy|set_multithreading_enabled)",
     "Old names and settings of PyTorch's own engine: tensors are variables, backward runs in the thread that calls it"),
    (r"torch\.func\.(debug_unwrap|functionalize|linearize|rearrange|replace_all_batch_norm_modules_|vmap)",
     "Transforms of functions that need a tensor of many at once or a trace: not planned"),
    (r"torch\.func\..*",
     "Functional forms of autograd: in Python only; C++ has autograd::grad, with create_graph"),
    (r"torch\.distributions\..*",
     "Distributions and their transforms: in Python only, the usual ones; others asked for by nothing yet"),
    (r"torch\.utils\.data\.(\w*DataPipe|\w*datapipes?\w*|DataChunk|argument_validation|non_deterministic|"
     r"runtime_validation\w*)",
     "Data pipes: not planned"),
    (r"torch\.utils\.data\..*",
     "Iterable data, collation and workers as Python has them: in C++ as in libtorch, stateful datasets and data::transforms"),
    (r"torch\.optim\.swa_utils\..*",
     "How weights are averaged: in C++ options of nn::AveragedModel"),
    (r"torch\.optim\..*",
     "Optimizers asked for by nothing yet"),
]

# Those that the Python package has, written in Python or as names of what is here.
IN_PYTHON = frozenset(f"torch.{name}" for name in """
Tensor.H Tensor.apply_ Tensor.as_subclass Tensor.bfloat16 Tensor.bool Tensor.byte Tensor.char Tensor.coalesce
Tensor.conj Tensor.corrcoef Tensor.cov Tensor.double Tensor.float Tensor.frexp Tensor.half Tensor.histogram Tensor.i0
Tensor.i0_ Tensor.int Tensor.is_coalesced Tensor.is_complex Tensor.is_conj Tensor.is_meta Tensor.is_mps Tensor.is_neg
Tensor.is_pinned Tensor.is_quantized Tensor.is_sparse Tensor.is_sparse_csr Tensor.is_xla Tensor.is_xpu Tensor.isreal
Tensor.long Tensor.mH Tensor.map_ Tensor.mvlgamma Tensor.mvlgamma_ Tensor.nanquantile Tensor.ndim Tensor.new_tensor
Tensor.nonzero_static Tensor.numpy Tensor.pin_memory Tensor.quantile Tensor.real Tensor.resolve_conj
Tensor.resolve_neg Tensor.shape Tensor.share_memory_ Tensor.short Tensor.to_dense Tensor.tolist Tensor.type
Tensor.untyped_storage as_tensor asarray autograd.Variable autograd.detect_anomaly autograd.enable_grad
autograd.inference_mode autograd.no_grad autograd.set_detect_anomaly autograd.set_grad_enabled conj corrcoef cov
distributions.AffineTransform distributions.Bernoulli distributions.Categorical distributions.Cauchy
distributions.ComposeTransform distributions.Distribution distributions.ExpTransform distributions.Exponential
distributions.ExponentialFamily distributions.Geometric distributions.Gumbel distributions.HalfNormal
distributions.Independent distributions.Laplace distributions.LogNormal distributions.MultivariateNormal
distributions.Normal distributions.OneHotCategorical distributions.OneHotCategoricalStraightThrough
distributions.PowerTransform distributions.SigmoidTransform distributions.TanhTransform distributions.Transform
distributions.TransformedDistribution distributions.Uniform distributions.kl_divergence distributions.register_kl
frexp from_numpy frombuffer func.functional_call func.grad func.grad_and_value func.hessian func.jacfwd func.jacrev
func.jvp func.stack_module_state func.vjp gradient histogram histogramdd i0 i0_ is_complex is_conj is_grad_enabled
is_inference_mode_enabled isreal mvlgamma nanquantile nn.Container nn.LazyBatchNorm1d nn.LazyBatchNorm2d
nn.LazyBatchNorm3d nn.LazyConv1d nn.LazyConv2d nn.LazyConv3d nn.LazyConvTranspose1d nn.LazyConvTranspose2d
nn.LazyConvTranspose3d nn.LazyInstanceNorm1d nn.LazyInstanceNorm2d nn.LazyInstanceNorm3d nn.LazyLinear nn.NLLLoss2d
nn.RNNBase nn.RNNCellBase nn.UpsamplingBilinear2d nn.UpsamplingNearest2d nn.functional.native_channel_shuffle
nn.functional.upsample nn.functional.upsample_bilinear nn.functional.upsample_nearest nn.utils.clip_grad_norm
nn.utils.clip_grads_with_norm_ nn.utils.fuse_conv_bn_eval nn.utils.fuse_conv_bn_weights nn.utils.fuse_linear_bn_eval
nn.utils.fuse_linear_bn_weights nn.utils.parametrizations nn.utils.parametrize nn.utils.skip_init nn.utils.stateless
nonzero_static optim.Adafactor optim.swa_utils.get_ema_avg_fn optim.swa_utils.get_ema_multi_avg_fn
optim.swa_utils.get_swa_avg_fn optim.swa_utils.get_swa_multi_avg_fn poisson quantile range real resolve_conj
resolve_neg set_flush_denormal special.entr special.erfcx special.i0 special.i0e special.i1 special.i1e
special.log_ndtr special.multigammaln special.ndtr special.ndtri special.xlog1py trapz unravel_index
utils.data.ChainDataset utils.data.IterableDataset utils.data.StackDataset utils.data.default_collate
utils.data.default_convert utils.data.get_worker_info
""".split())

# Scope of the classes of a place, and what they derive from.
BASES = {
    "torch.nn": ("athanor::nn", {"Module", "ModuleHolder"}),
    "torch.optim": ("athanor::optim", {"Optimizer"}),
    "torch.optim.lr_scheduler": ("athanor::optim", {"LRScheduler"}),
}

# How ops of a place are called, as in libtorch: linalg_inv.
PREFIXES = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": "fft_"}


# Where libtorch, and this library after it, has what Python has elsewhere.
ELSEWHERE = {
    "torch.utils.data": ("athanor::data", "athanor::data::datasets", "athanor::data::samplers"),
    "torch.optim.swa_utils": ("athanor::nn", "athanor::optim"),
}


class Library:
    """What programs can name: functions and methods by their declarations, layers, optimizers and schedules as classes
    that derive from the bases that make them so. An op counts in every place where PyTorch's Python has it."""

    def __init__(self, names=None):
        self.names = names or public_names.read_library()

    def has(self, full):
        place, name = full.rsplit(".", 1)
        functions = self.names.functions("athanor")
        if place == "torch":
            return name in functions
        if place == "torch.Tensor":
            return any(name in self.names.functions(f"athanor::{c}") for c in ("Tensor", "TensorBase"))
        if place in BASES:
            scope, bases = BASES[place]
            return name in self.names.classes(scope) and self.names.is_a(scope, name, bases)
        scope = place.replace(".", "::").replace("torch", "athanor", 1)
        if name in self.names.functions(scope) or f"{scope}::{name}" in self.names.scopes:
            return True
        if any(name in self.names.functions(s) or f"{s}::{name}" in self.names.scopes for s in ELSEWHERE.get(place, ())):
            return True
        if place == "torch.nn.functional":
            return name in functions
        return place in PREFIXES and PREFIXES[place] + name in functions


def entries(library=None):
    """(reason, [names]) in the order of REASONS, and the names without a reason."""
    library = library or Library()
    names = (ROOT / "tools" / "pytorch_names.txt").read_text().split()
    absent = [n for n in names if not library.has(n)]
    found, without = [], []
    for pattern, why in REASONS:
        found.append((why, []))
    for name in absent:
        for i, (pattern, _) in enumerate(REASONS):
            if re.fullmatch(pattern, name):
                found[i][1].append(name)
                break
        else:
            without.append(name)
    return found, without, len(names), len(absent)


def page(found, total, absent):
    out = ["# What PyTorch has and this library has not", "",
           "Written by `tools/missing.py` from the names of PyTorch's reference of `torch`, `Tensor` with its methods in place, "
           "`autograd`, `distributions`, `fft`, `func`, `linalg`, `nn`, `nn.functional`, `nn.utils`, `optim`, `special` and "
           f"`utils.data`: {total} names, {absent} of them not "
           f"here. A function and a method of one name count twice. The Python package has the {len(IN_PYTHON)} that end in °.", ""]
    merged = {}
    for why, names in found:
        if names:
            merged.setdefault(why, []).extend(names)
    for why, names in merged.items():
        out += [f"## {why}", "", ", ".join(f"`{n.removeprefix('torch.')}`" + "°" * (n in IN_PYTHON) for n in sorted(names)), ""]
    return "\n".join(out)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    found, without, total, absent = entries()
    faults = [f"no reason for {name}: add it to REASONS in tools/missing.py" for name in without]
    unused = [f"no longer needed in REASONS: {pattern}" for (pattern, _), (_, names) in zip(REASONS, found) if not names]
    text = page(found, total, absent)
    written = PAGE.read_text() if PAGE.exists() else ""
    if args.check:
        listed = set(re.findall(r"`([\w.]+)`", written))
        faults += [f"{PAGE.name} lacks {name}: run tools/missing.py" for _, names in found for name in names
                   if name.removeprefix("torch.") not in listed]
        if not faults and written != text:
            faults.append(f"{PAGE.name} is not what tools/missing.py writes: run it")
    print(*faults, *unused, sep="\n")
    if not args.check:
        PAGE.write_text(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
