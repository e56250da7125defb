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
    (r"torch\.(Tensor\.)?(geqrf|orgqr|ormqr|lu|lu_solve|lu_unpack|cholesky_inverse|"
     r"triangular_solve|matrix_exp|pca_lowrank|svd_lowrank)|torch\.linalg\..*",
     "Linear algebra beyond systems, inverses, determinants, norms, products, least squares, and factors by Cholesky, QR, "
     "singular values and symmetric eigenvalues: there is no LAPACK, and no kernel of the library's own for eigenvalues of "
     "other matrices, whose numbers are complex, and for factors that are kept for later calls"),
    (r"torch\.special\..*|torch\.(Tensor\.)?(i0_?|igammac?_?|mvlgamma_?|frexp)",
     "Special functions beyond those of the tensor methods: each is a kernel for three instruction sets in a library of 15 "
     "MB at most; those marked are made of other operations in Python"),
    (r"torch\.from_file", "Tensors on mapped files: of safetensors, NumPy's files and PyTorch's own, which say shape and dtype"),
    (r"torch\.Tensor\.grad_dtype", "A gradient has its tensor's dtype"),
    (r"torch\.segment_reduce|torch\.hash_tensor",
     "Prototypes of PyTorch: scatter_reduce and index_reduce are here"),
    (r"torch\.(Tensor\.)?(cov|corrcoef|gradient|quantile|nanquantile|histogram|histogramdd|nonzero_static|range|poisson|"
     r"unravel_index)",
     "Statistics and indices that are made of other operations: in Python only"),
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
     "Fusion of layers, calls with other parameters: in Python only, as in libtorch; memory formats of weights: convolutions "
     "bring weights into the order they need themselves"),
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
     "Distributions and their transforms: in Python only, those of policies and variational models; those that are drawn by "
     "a Gamma need a sampler with a gradient of its own, and one's own Distribution serves for the others"),
    (r"torch\.utils\.data\.(\w*DataPipe|\w*datapipes?\w*|DataChunk|argument_validation|non_deterministic|"
     r"runtime_validation\w*)",
     "Data pipes: not planned"),
    (r"torch\.utils\.data\..*",
     "Iterable data, collation and workers as Python has them: in C++ as in libtorch, stateful datasets and data::transforms"),
    (r"torch\.optim\.swa_utils\..*",
     "How weights are averaged: in C++ options of nn::AveragedModel"),
    (r"torch\.optim\..*",
     "Adafactor: in Python only. Muon: for matrices alone, by iterations in bfloat16; an Optimizer of one's own can have it"),
    (r"torch\.amp\..*",
     "Regions of automatic dtypes: guards in C++ (athanor::autocast), and for functions of one's own autograd::Function"),
    (r"torch\.utils\.checkpoint\.(checkpoint_sequential|CheckpointError|noop_context_fn)",
     "Forms of checkpoint for Python's containers and context managers: in Python only"),
    (r"torch\.utils\.checkpoint\.(CheckpointPolicy|SAC_IGNORED_OPS|SelectiveCheckpointContext|"
     r"create_selective_checkpoint_contexts)",
     "Checkpoints that choose by operation need a dispatcher that Python hears of: choose what to checkpoint by function"),
    (r"torch\.utils\.checkpoint\.(set_checkpoint_early_stop|set_checkpoint_debug_enabled|GraphExecGroup)",
     "Switches of how PyTorch recomputes: here a function is called again as a whole, and what differs is named"),
    (r"torch\.utils\.checkpoint\..*",
     "Parts of PyTorch's own checkpoint that it exports: generators are put back by checkpoint itself"),
    (r"torch\.utils\.tensorboard\..*",
     "Parts under SummaryWriter, which is the one that programs use: it writes events itself"),
    (r"torch\.profiler\.(CuspyConfig|ExecutionTraceObserver|PerformanceMetricsConfig|ProfilerActivityConfig)",
     "Recorders of PyTorch's own graphs and of NVIDIA's counters: traces for Chrome and tables are here"),
    (r"torch\.profiler\..*",
     "Python's profiler with its schedule: in Python only; in C++ profiler::Profile and RecordFunction"),
    (r"torch\.nn\.attention\.(SDPBackend|sdpa_kernel)",
     "Which kernel attention takes: one of the library's own here, so that Python's choice has no effect, and C++ has none"),
    (r"torch\.nn\.attention\..*",
     "Plug-in kernels of attention for NVIDIA's devices: there is no place for them here"),
    (r"torch\.cuda\.(\w+Storage|\w+Tensor)",
     "Types by dtype and device, deprecated in PyTorch: a tensor has a dtype and a device"),
    (r"torch\.cuda\.(CUDAGraph|graph|graph_pool_handle|is_current_stream_capturing|make_graphed_callables|"
     r"export_graph_data)",
     "Recorded graphs of kernels: queues here take work a call at a time"),
    (r"torch\.cuda\.(CUDAPluggableAllocator|MemPool|use_mem_pool|caching_allocator_\w+|change_current_allocator|"
     r"get_allocator_backend|memory_snapshot|memory_stats_as_nested_dict|host_memory_stats\w*|reset_\w*host_memory_stats|"
     r"get_per_process_memory_fraction)",
     "Choice and records of PyTorch's allocators: the library's own has counters (memory_stats) and a limit"),
    (r"torch\.cuda\.(clock_rate|device_memory_used|list_gpu_processes|memory_usage|power_draw|temperature|utilization)",
     "What NVIDIA's management library measures: nvidia-smi shows it"),
    (r"torch\.cuda\.(CudaError|DeferredCudaCallError|cudaStatus|cudart|check_error|current_blas_handle|"
     r"current_solver_handle|ExternalStream|GreenContext|get_stream_from_external|export_dot)",
     "Handles of CUDA's own libraries and of other programs: their types are in no header here"),
    (r"torch\.cuda\.(has_half|has_magma|get_gencode_flags|default_generators|[gs]et_sync_debug_mode)",
     "How a build of PyTorch was made and is debugged"),
    (r"torch\.cuda\..*",
     "Devices, streams, memory and generators of CUDA as Python's programs write them: in Python; in C++ athanor/stream.h, "
     "tensor/cuda.h and Generator"),
    (r"torch\.distributed\.(\w+Options|BackendConfig|ProcessGroup\w+|Logger|Reducer|BuiltinCommHookType|get_backend_impl|"
     r"get_backend_config|record_comm|GroupName|QueueEmptyError)",
     "Parts of PyTorch's process groups and of its DDP: groups, hooks and options here are named in distributed/groups.h and "
     "parallel/ddp.h"),
    (r"torch\.distributed\.(DeviceMesh|init_device_mesh)",
     "Meshes are for DTensor, which is not planned: new_group makes the groups of rows and columns that "
     "parallel/tensor_parallel.h takes"),
    (r"torch\.distributed\.(DebugLevel|[gs]et_debug_level\w*)",
     "How much is checked and told: ATHANOR_LOG; calls that do not match are always found"),
    (r"torch\.distributed\.(rendezvous|register_rendezvous_handler)",
     "Ways to meet that a program adds: init_process_group takes a store of one's own"),
    (r"torch\.distributed\.(set_timeout|shrink_group)",
     "Groups that change under way: a group has one timeout for life, and after a loss the launcher starts a new round"),
    (r"torch\.distributed\.(gather_into_tensor|gather_single)",
     "gather into one tensor, new in PyTorch 2.15: gather takes a list of its parts (chunk)"),
    (r"torch\.distributed\.(breakpoint|supports_complex)",
     "A debugger for one rank, and a question about complex numbers, of which there are none"),
    (r"torch\.distributed\..*",
     "Other names for what C++ has in distributed/groups.h and parallel/ddp.h, and old ones: in Python only"),
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
Tensor.untyped_storage amp.autocast amp.custom_bwd amp.custom_fwd amp.is_autocast_available as_tensor asarray
autograd.Variable autograd.detect_anomaly autograd.enable_grad autograd.inference_mode autograd.no_grad
autograd.set_detect_anomaly autograd.set_grad_enabled conj corrcoef cov cuda.BFloat16Tensor cuda.BoolTensor
cuda.ByteTensor cuda.CharTensor cuda.DoubleTensor cuda.Event cuda.FloatTensor cuda.HalfTensor cuda.IntTensor
cuda.LongTensor cuda.ShortTensor cuda.Stream cuda.StreamContext cuda.can_device_access_peer cuda.default_stream
cuda.device cuda.device_of cuda.get_arch_list cuda.get_device_capability cuda.get_rng_state cuda.get_rng_state_all
cuda.init cuda.initial_seed cuda.ipc_collect cuda.is_bf16_supported cuda.is_initialized cuda.is_tf32_supported
cuda.max_memory_cached cuda.memory_cached cuda.memory_summary cuda.reset_accumulated_memory_stats
cuda.reset_max_memory_allocated cuda.reset_max_memory_cached cuda.seed cuda.seed_all cuda.set_rng_state
cuda.set_rng_state_all cuda.set_stream cuda.stream distributed.GradBucket distributed.GroupMember
distributed.all_gather_single distributed.default_pg_timeout distributed.get_default_backend_for_device
distributed.get_pg_count distributed.is_ucc_available distributed.is_xccl_available
distributed.new_subgroups_by_enumeration distributed.reduce_scatter_single distributions.AffineTransform
distributions.Bernoulli distributions.Categorical distributions.Cauchy distributions.ComposeTransform
distributions.Distribution distributions.ExpTransform distributions.Exponential distributions.ExponentialFamily
distributions.Geometric distributions.Gumbel distributions.HalfNormal distributions.Independent distributions.Laplace
distributions.LogNormal distributions.MultivariateNormal distributions.Normal distributions.OneHotCategorical
distributions.OneHotCategoricalStraightThrough distributions.PowerTransform distributions.SigmoidTransform
distributions.TanhTransform distributions.Transform distributions.TransformedDistribution distributions.Uniform
distributions.kl_divergence distributions.register_kl frexp from_numpy frombuffer func.functional_call func.grad
func.grad_and_value func.hessian func.jacfwd func.jacrev func.jvp func.stack_module_state func.vjp gradient histogram
histogramdd i0 i0_ is_conj is_grad_enabled is_inference_mode_enabled isreal linalg.tensorinv
linalg.tensorsolve linalg.vander mvlgamma nanquantile nn.Container nn.LazyBatchNorm1d nn.LazyBatchNorm2d
nn.LazyBatchNorm3d nn.LazyConv1d nn.LazyConv2d nn.LazyConv3d nn.LazyConvTranspose1d nn.LazyConvTranspose2d
nn.LazyConvTranspose3d nn.LazyInstanceNorm1d nn.LazyInstanceNorm2d nn.LazyInstanceNorm3d nn.LazyLinear nn.NLLLoss2d
nn.RNNBase nn.RNNCellBase nn.UpsamplingBilinear2d nn.UpsamplingNearest2d nn.attention.SDPBackend
nn.attention.sdpa_kernel nn.functional.native_channel_shuffle nn.functional.upsample nn.functional.upsample_bilinear
nn.functional.upsample_nearest nn.utils.clip_grad_norm nn.utils.clip_grads_with_norm_ nn.utils.fuse_conv_bn_eval
nn.utils.fuse_conv_bn_weights nn.utils.fuse_linear_bn_eval nn.utils.fuse_linear_bn_weights nn.utils.parametrizations
nn.utils.parametrize nn.utils.skip_init nn.utils.stateless nonzero_static optim.Adafactor
optim.swa_utils.get_ema_avg_fn optim.swa_utils.get_ema_multi_avg_fn optim.swa_utils.get_swa_avg_fn
optim.swa_utils.get_swa_multi_avg_fn poisson profiler.DeviceType profiler.ProfilerAction profiler.ProfilerActivity
profiler.kineto_available profiler.profile profiler.record_function profiler.schedule profiler.supported_activities
profiler.tensorboard_trace_handler quantile range real resolve_conj resolve_neg set_flush_denormal special.entr
special.erfcx special.i0 special.i0e special.i1 special.i1e special.log_ndtr special.multigammaln special.ndtr
special.ndtri special.xlog1py trapz unravel_index utils.checkpoint.CheckpointError
utils.checkpoint.check_backward_validity utils.checkpoint.checkpoint_sequential utils.checkpoint.detach_variable
utils.checkpoint.noop_context_fn utils.data.ChainDataset utils.data.IterableDataset utils.data.StackDataset
utils.data.default_collate utils.data.default_convert utils.data.get_worker_info
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
    "torch.utils.checkpoint": ("athanor::autograd",),
    "torch.utils.tensorboard": ("athanor::io",),
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
           "`amp`, `autograd`, `cuda`, `distributed`, `distributions`, `fft`, `func`, `linalg`, `nn`, `nn.attention`, "
           "`nn.functional`, `nn.parallel`, `nn.utils`, `optim`, `profiler`, `special`, `utils.checkpoint`, `utils.data` and "
           f"`utils.tensorboard`: {total} names, {absent} of them not "
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
