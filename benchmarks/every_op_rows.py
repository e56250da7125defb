"""The rows of benchmarks/every_op.py, run by one side: `every_op_rows.py athanor|torch`, requests on standard input."""

import importlib
import json
import sys
import time
import warnings

torch = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "athanor")
F = torch.nn.functional
ROWS = {}


def row(name, function, *operands, grad=True, make=None):
    """Notes a row, and `name.backward`. `operands` are shapes of normal values or functions that make them."""

    def prepare():
        torch.manual_seed(0)
        return [torch.randn(*o) if isinstance(o, tuple) else o() for o in operands]

    def forward():
        tensors, call = prepare(), make() if make else function

        def body():
            with torch.no_grad():
                call(*tensors)

        return body

    def backward():
        call = make() if make else function
        tensors = [t.requires_grad_() if t.is_floating_point() else t for t in prepare()]
        out = call(*tensors)
        out = out[0] if isinstance(out, (tuple, list)) else out
        ones, wanted = torch.ones_like(out), [t for t in tensors if t.requires_grad]
        return lambda: torch.autograd.grad(out, wanted, ones, retain_graph=True)

    ROWS[name] = forward
    if grad:
        ROWS[name + ".backward"] = backward


def positive(*shape):
    return lambda: torch.rand(*shape) * 0.98 + 0.01


def integers(*shape, below=1000):
    return lambda: torch.randint(0, below, shape)


def truths(*shape):
    return lambda: torch.randn(*shape) > 0


SQUARE, IMAGES, SEQUENCE, HEADS = (1000, 1000), (16, 16, 56, 56), (16, 128, 256), (8, 4, 128, 64)


def pointwise():
    for name in ("abs neg exp log sqrt rsqrt sin cos tan tanh sigmoid relu erf floor ceil round trunc sign reciprocal square "
                 "log1p expm1 asin atan sinh cosh exp2 log2 log10 frac logit erfinv lgamma digamma").split():
        row(f"unary.{name}", getattr(torch, name), positive(*SQUARE))
    for name in "isnan isinf".split():
        row(f"unary.{name}", getattr(torch, name), SQUARE, grad=False)
    for name in "add sub mul div maximum minimum atan2 fmod remainder pow hypot logaddexp".split():
        row(f"binary.{name}", getattr(torch, name), positive(*SQUARE), lambda: torch.full(SQUARE, 1.5))
    for name in "eq lt gt ne".split():
        row(f"binary.{name}", getattr(torch, name), SQUARE, SQUARE, grad=False)
    for name in "add mul".split():
        row(f"int64.{name}", getattr(torch, name), integers(*SQUARE), integers(*SQUARE), grad=False)
    row("int64.floor_div", lambda a: torch.div(a, 7, rounding_mode="floor"), integers(*SQUARE), grad=False)
    row("int64.remainder", lambda a: a % 7, integers(*SQUARE), grad=False)
    row("int64.and", lambda a: a & 7, integers(*SQUARE), grad=False)
    row("int64.shift", lambda a: a << 2, integers(*SQUARE), grad=False)
    row("float64.add", torch.add, lambda: torch.randn(*SQUARE).double(), lambda: torch.randn(*SQUARE).double())
    for name in "exp sum".split():
        row(f"bfloat16.{name}", getattr(torch, name), lambda: torch.randn(*SQUARE).bfloat16(), grad=False)
    row("broadcast.row", torch.add, SQUARE, (1000,))
    row("broadcast.column", torch.mul, SQUARE, (1000, 1))
    row("broadcast.outer", lambda a: a[:, None, :] * a[None, :50, :], (200, 100))
    row("strided.transposed", lambda a, b: a + b.t(), SQUARE, SQUARE)
    row("strided.every_second", lambda a: a[:, ::2] + 1, SQUARE)
    row("where", lambda a, b: torch.where(a > 0, a, b), SQUARE, SQUARE)
    row("masked_fill", lambda a, m: a.masked_fill(m, 0), SQUARE, truths(*SQUARE))
    row("clamp", lambda a: a.clamp(-1, 1), SQUARE)
    row("addcmul", torch.addcmul, SQUARE, SQUARE, SQUARE)
    row("lerp", lambda a, b: torch.lerp(a, b, 0.3), SQUARE, SQUARE)
    row("nan_to_num", torch.nan_to_num, SQUARE)
    for name in "gelu silu elu leaky_relu softplus mish hardswish glu selu logsigmoid".split():
        row(f"activation.{name}", getattr(F, name), SQUARE)
    row("activation.gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), SQUARE)
    row("dropout", lambda a: F.dropout(a, 0.5), SQUARE)


def reductions():
    for dim in (None, 0, 1):
        where = "all" if dim is None else ("columns", "rows")[dim]
        for name in "sum mean std var amax prod logsumexp norm argmax max median all any cumsum cumprod sort".split():
            if dim is None and name in ("logsumexp", "amax", "cumsum", "cumprod", "sort"):
                continue
            function = getattr(torch, name)
            call = (lambda a, f=function: f(a)) if dim is None else (lambda a, f=function, d=dim: f(a, dim=d))
            row(f"{name}.{where}", call, truths(*SQUARE) if name in ("all", "any") else SQUARE,
                grad=name not in ("argmax", "median", "all", "any"))
    row("sum.every_second", lambda a: a[::2, ::2].sum(), SQUARE)
    row("topk", lambda a: torch.topk(a, 10, 1), SQUARE)
    row("kthvalue", lambda a: torch.kthvalue(a, 10, 1), SQUARE)
    row("cummax", lambda a: a.cummax(1), SQUARE)
    row("logcumsumexp", lambda a: a.logcumsumexp(1), SQUARE)
    row("int64.cumsum", lambda a: a.cumsum(1), integers(*SQUARE), grad=False)
    row("int64.sort", lambda a: a.sort(1), integers(*SQUARE), grad=False)
    row("int64.mode", lambda a: a.mode(1), integers(*SQUARE), grad=False)
    row("argsort.flat", lambda a: a.view(-1).argsort(), SQUARE, grad=False)
    row("unique", torch.unique, integers(*SQUARE), grad=False)
    row("bincount", lambda a: torch.bincount(a.view(-1)), integers(*SQUARE), grad=False)
    row("histc", lambda a: torch.histc(a, 100), SQUARE, grad=False)
    row("count_nonzero", torch.count_nonzero, SQUARE, grad=False)
    row("searchsorted", lambda a, s: torch.searchsorted(s, a), SQUARE, lambda: torch.arange(1000.0), grad=False)
    row("isin", torch.isin, integers(*SQUARE), integers(1000), grad=False)
    row("allclose", torch.allclose, SQUARE, SQUARE, grad=False)
    row("diff", torch.diff, SQUARE)


def moving():
    row("masked_select", lambda a, m: a.masked_select(m), SQUARE, truths(*SQUARE))
    row("nonzero", torch.nonzero, truths(*SQUARE), grad=False)
    row("gather.rows", lambda a, i: a.gather(1, i), SQUARE, integers(*SQUARE))
    row("gather.columns", lambda a, i: a.gather(0, i), SQUARE, integers(*SQUARE))
    row("index_select", lambda a, i: a.index_select(0, i), SQUARE, integers(1000))
    row("index.pairs", lambda a, i: a[i, i], SQUARE, integers(1000))
    row("index.rows", lambda a, i: a[i], SQUARE, integers(1000))
    row("scatter_add", lambda a, i: torch.zeros(1000, 1000).scatter_add(1, i, a), SQUARE, integers(*SQUARE))
    row("index_add", lambda a, i: torch.zeros(1000, 1000).index_add(0, i, a), SQUARE, integers(1000))
    row("index_put", lambda a, i: torch.zeros(1000, 1000).index_put((i,), a), SQUARE, integers(1000))
    row("cat", lambda a, b: torch.cat([a, b], 1), SQUARE, SQUARE)
    row("stack", lambda a, b: torch.stack([a, b], 2), SQUARE, SQUARE)
    row("flip", lambda a: a.flip(1), SQUARE)
    row("roll", lambda a: a.roll(3, 1), SQUARE)
    row("repeat", lambda a: a.repeat(2, 2), SQUARE)
    row("repeat_interleave", lambda a: a.repeat_interleave(2, 1), SQUARE)
    row("tril", torch.tril, SQUARE)
    row("clone", torch.clone, SQUARE)
    row("contiguous.transposed", lambda a: a.t().contiguous(), SQUARE)
    row("contiguous.channels_last", lambda a: a.permute(0, 2, 3, 1).contiguous(), IMAGES)
    row("to.float64", lambda a: a.double(), SQUARE)
    row("to.bfloat16", lambda a: a.bfloat16(), SQUARE)
    row("to.int64", lambda a: a.long(), SQUARE, grad=False)
    row("to.from_bool", lambda a: a.float(), truths(*SQUARE), grad=False)
    row("pad.constant", lambda a: F.pad(a, (2, 2, 2, 2)), IMAGES)
    row("pad.reflect", lambda a: F.pad(a, (2, 2, 2, 2), "reflect"), IMAGES)
    row("one_hot", lambda i: F.one_hot(i, 1000), integers(1000), grad=False)
    row("embedding", lambda w, i: F.embedding(i, w), (1000, 256), integers(16, 128))
    row("embedding_bag", lambda w, i: F.embedding_bag(i, w, mode="sum"), (1000, 64), integers(100, 100))


def normalization_and_images():
    for dim in (0, 1):
        row(f"softmax.{('columns', 'rows')[dim]}", lambda a, d=dim: F.softmax(a, d), SQUARE)
    row("log_softmax", lambda a: F.log_softmax(a, 1), SQUARE)
    row("layer_norm", lambda a: F.layer_norm(a, (1000,)), SQUARE)
    row("group_norm", lambda a: F.group_norm(a, 4), IMAGES)
    row("instance_norm", F.instance_norm, IMAGES)
    row("batch_norm", lambda a: F.batch_norm(a, None, None, training=True), IMAGES)
    row("batch_norm.eval", lambda a: F.batch_norm(a, torch.zeros(16), torch.ones(16)), IMAGES)
    row("normalize", F.normalize, SQUARE)
    row("max_pool2d.2", lambda a: F.max_pool2d(a, 2), IMAGES)
    row("max_pool2d.3s2", lambda a: F.max_pool2d(a, 3, 2, 1), IMAGES)
    row("avg_pool2d.2", lambda a: F.avg_pool2d(a, 2), IMAGES)
    row("adaptive_avg_pool2d.7", lambda a: F.adaptive_avg_pool2d(a, 7), IMAGES)
    row("adaptive_avg_pool2d.1", lambda a: F.adaptive_avg_pool2d(a, 1), IMAGES)
    for mode in "nearest bilinear bicubic".split():
        row(f"interpolate.{mode}", lambda a, m=mode: F.interpolate(a, scale_factor=2, mode=m), IMAGES)
    row("unfold", lambda a: F.unfold(a, 3, padding=1), IMAGES)
    row("pixel_shuffle", lambda a: F.pixel_shuffle(a, 4), IMAGES)
    row("grid_sample", lambda a: F.grid_sample(a, torch.full((16, 56, 56, 2), 0.3), align_corners=False), IMAGES)


def depthwise(name, shape, kernel, stride):
    """In plain order, channels-last and, there, in bfloat16."""

    def call(a, w):
        return F.conv2d(a, w, None, stride, kernel // 2, 1, shape[1])

    def last(dtype):
        return lambda: torch.randn(*shape).to(dtype).contiguous(memory_format=torch.channels_last)

    weight = (shape[1], 1, kernel, kernel)
    row(f"conv2d.depthwise.{name}", call, shape, weight)
    row(f"conv2d.depthwise.{name}.channels_last", call, last(torch.float32), weight)
    row(f"conv2d.depthwise.{name}.bfloat16", call, last(torch.bfloat16), lambda: torch.randn(*weight).bfloat16())


def products():
    row("conv2d.3x3", lambda a, w: F.conv2d(a, w, None, 1, 1), IMAGES, (32, 16, 3, 3))
    row("conv2d.1x1", lambda a, w: F.conv2d(a, w), IMAGES, (64, 16, 1, 1))
    row("conv2d.5x5s2", lambda a, w: F.conv2d(a, w, None, 2, 2), IMAGES, (32, 16, 5, 5))
    row("conv2d.depthwise", lambda a, w: F.conv2d(a, w, None, 1, 1, 1, 16), IMAGES, (16, 1, 3, 3))
    for name, shape, kernel, stride in [("3x3", (8, 384, 14, 14), 3, 1), ("3x3s2", (4, 96, 112, 112), 3, 2),
                                        ("3x3.small", (8, 960, 7, 7), 3, 1), ("5x5", (8, 240, 28, 28), 5, 1),
                                        ("7x7", (4, 96, 56, 56), 7, 1)]:
        depthwise(name, shape, kernel, stride)
    row("conv2d.groups", lambda a, w: F.conv2d(a, w, None, 1, 1, 1, 4), IMAGES, (32, 4, 3, 3))
    row("conv2d.dilated", lambda a, w: F.conv2d(a, w, None, 1, 2, 2), IMAGES, (32, 16, 3, 3))
    row("conv_transpose2d", lambda a, w: F.conv_transpose2d(a, w, None, 2, 1), IMAGES, (16, 32, 4, 4))
    row("conv_transpose2d.bias", lambda a, w, b: F.conv_transpose2d(a, w, b, 2, 1), IMAGES, (16, 32, 4, 4), (32,))
    row("conv1d", lambda a, w: F.conv1d(a, w, None, 1, 1), (16, 64, 256), (64, 64, 3))
    row("conv3d", lambda a, w: F.conv3d(a, w, None, 1, 1), (2, 8, 16, 28, 28), (16, 8, 3, 3, 3))
    row("conv3d.strided", lambda a, w: F.conv3d(a, w, None, 2, 1), (2, 8, 16, 28, 28), (16, 8, 3, 3, 3))
    row("linear", F.linear, SEQUENCE, (512, 256))
    row("bmm", torch.bmm, (64, 64, 64), (64, 64, 64))
    row("baddbmm", torch.baddbmm, (64, 64, 64), (64, 64, 64), (64, 64, 64))
    row("matmul.4d", torch.matmul, HEADS, (8, 4, 64, 128))
    row("matmul.one_row", torch.mm, (1, 1000), SQUARE)
    row("mv", torch.mv, SQUARE, (1000,))
    row("dot", torch.dot, (1000000,), (1000000,))
    row("outer", torch.outer, (1000,), (1000,))
    row("kron", torch.kron, (32, 32), (32, 32))
    row("addmm", lambda a, b, c: torch.addmm(c, a, b), SQUARE, SQUARE, (1000,))
    row("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), SEQUENCE, SEQUENCE)
    row("float64.mm", torch.mm, *[lambda: torch.randn(300, 300).double()] * 2)
    row("int64.mm", torch.mm, integers(300, 300), integers(300, 300), grad=False)
    row("bfloat16.mm", torch.mm, *[lambda: torch.randn(*SQUARE).bfloat16()] * 2, grad=False)
    row("linalg.inv", torch.linalg.inv, (200, 200))
    row("linalg.solve", torch.linalg.solve, (200, 200), (200, 5))
    row("linalg.det", torch.linalg.det, (200, 200))
    row("linalg.cholesky", lambda a: torch.linalg.cholesky(a @ a.t() + 200 * torch.eye(200)), (200, 200))
    row("cdist", torch.cdist, (500, 64), (500, 64))
    row("cross", lambda a, b: torch.cross(a, b, 1), (100000, 3), (100000, 3))
    row("attention", F.scaled_dot_product_attention, HEADS, HEADS, HEADS)
    row("attention.causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), HEADS, HEADS, HEADS)


def losses():
    row("cross_entropy", F.cross_entropy, SQUARE, integers(1000))
    row("nll_loss", F.nll_loss, SQUARE, integers(1000))
    row("multi_margin_loss", F.multi_margin_loss, SQUARE, integers(1000))
    for name in "mse_loss l1_loss smooth_l1_loss huber_loss cosine_similarity pairwise_distance".split():
        row(name, getattr(F, name), SQUARE, SQUARE)
    row("binary_cross_entropy", lambda a: F.binary_cross_entropy(a, torch.ones(1000, 1000)), positive(*SQUARE))
    row("binary_cross_entropy_with_logits", lambda a: F.binary_cross_entropy_with_logits(a, torch.ones(1000, 1000)), SQUARE)
    row("kl_div", lambda a, b: F.kl_div(a, b, reduction="batchmean"), SQUARE, positive(*SQUARE))
    row("triplet_margin_loss", F.triplet_margin_loss, SQUARE, SQUARE, SQUARE)
    row("ctc_loss", lambda a, t: F.ctc_loss(a.log_softmax(2), t + 1, torch.full((16,), 100), torch.full((16,), 30)),
        (100, 16, 20), integers(16, 30, below=19))


def modules():
    for name in "LSTM GRU RNN".split():
        row(f"nn.{name}", None, (50, 16, 64), make=lambda n=name: getattr(torch.nn, n)(64, 128))
    row("nn.LSTMCell", None, (16, 64), make=lambda: torch.nn.LSTMCell(64, 128))
    row("nn.Bilinear", None, (64, 64), (64, 64), make=lambda: torch.nn.Bilinear(64, 64, 32))
    row("nn.TransformerEncoderLayer", None, SEQUENCE,
        make=lambda: torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0))


def making():
    for name, call in {
            "rand": lambda: torch.rand(1000, 1000), "randn": lambda: torch.randn(1000, 1000),
            "randint": lambda: torch.randint(0, 10, (1000, 1000)), "randperm": lambda: torch.randperm(1000000),
            "arange": lambda: torch.arange(1000000), "linspace": lambda: torch.linspace(0, 1, 1000000),
            "zeros": lambda: torch.zeros(1000, 1000), "full": lambda: torch.full((1000, 1000), 3.0),
            "exponential": lambda: torch.empty(1000, 1000).exponential_(),
            "tensor": lambda: torch.tensor([[1.0] * 100] * 100)}.items():
        row(f"make.{name}", call, grad=False)
    row("make.bernoulli", torch.bernoulli, positive(*SQUARE), grad=False)
    row("make.multinomial", lambda a: torch.multinomial(a, 10), positive(*SQUARE), grad=False)
    row("tolist", lambda a: a.tolist(), (64, 64), grad=False)


def least_time(body, seconds: float = 0.08) -> float:
    body()
    least, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < 3 or (calls < 2000 and time.perf_counter() < end):
        start = time.thread_time()
        body()
        least = min(least, time.thread_time() - start)
        calls += 1
    return least


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for family in (pointwise, reductions, moving, normalization_and_images, products, losses, modules, making):
        family()
    print(json.dumps({"version": torch.__version__, "threads": 1, "rows": list(ROWS)}), flush=True)
    prepared = None
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["quit"]:
            break
        try:
            if prepared is None or prepared[0] != words[1]:
                prepared = None
                prepared = (words[1], ROWS[words[1]]())
            print(json.dumps({"seconds": least_time(prepared[1])}), flush=True)
        except Exception as error:  # pylint: disable=broad-except
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
