"""What each row is held against: ratios to the best of some peers, and the physical limit that excuses a smaller one."""

import re

# A ratio target also counts as met at this share of the measured limit.
SHARE_OF_LIMIT = 0.85

# Rows whose results come back to the caller's eye first; --quick runs only these.
QUICK = re.compile(
    r"^(overhead\.add\.(no_grad|grad)/64|overhead\.mm|mlp\.step|mnist\.(conv|tutorial)/b(64|128)|loader\.memory|"
    r"(add\.new|muladd\.new|exp\.new|tanh\.new|gelu\.new|sum\.all|sum\.first|max_index\.last|softmax\.last|"
    r"layer_norm\.last|transpose\.new|index_rows\.new|sort|uniform\.fill|normal\.fill)/1e6|add\.new/1e8|"
    r"gemm\.(f32|bf16)/(256|1024)|"
    r"conv\.(forward|backward)/(mnist\.b64c32x26|resnet50\.b8c(64x56k64r3|256x14k1024r1|512x7k512)))")

# A way of Athanor's own, after '@', that counts only where a target names it: 3 × 3 convolutions without Winograd.
SEPARATE_WAYS = ("no_winograd",)

# (rows, least ratio to the best peer, which peers), or (rows, [(least ratio, which peers, Athanor's way), ...]) where a
# row has to reach several, each by all of its ways but the separate ones or, if one is named, by that: the first match
# counts. Ratios are of rates: 2 means twice as fast.
TARGETS = [
    (r"overhead\.add\.no_grad/64", 5.0, "libtorch"),
    (r"overhead\.add\.grad/64", 4.0, "libtorch"),
    (r"mlp\.step/b1", 4.0, "libtorch"),
    (r"mlp\.step/b64", 1 / 0.68, "libtorch"),
    (r"mnist\.conv/b64", 1.5, ""),
    (r"mnist\.tutorial/b128", 2.0, ""),
    (r"(cumsum|topk|median|unique|searchsorted|randperm)\b.*", 1.0, ""),
    (r"(tanh|exp|gelu|softmax|log_softmax|layer_norm|max_index|argmax|sum\.first|transpose|sort|uniform|normal)\b.*",
     2.0, ""),
    (r"(sum|mean|amax)\..*", 0.95, ""),
    (r"(add|muladd|relu|sigmoid|clone|cat|broadcast_\w+)\.new/1e8", 5.0, "plain"),
    # Calls so short that plain oneDNN, which records nothing, is not comparable.
    (r"conv\.\w+/small\..*", 0.97, "torch"),
    (r"(gemm|conv|conv_blocked)\..*", 0.97, ""),
    (r"optim\..*/1000x256", 4.0, ""),
    (r"optim\..*", 0.95, ""),
    (r"resnet\..*", 1.0, ""),
    (r"resnet50\.step/.*", [(1.15, "tuned", ""), (1.3, "plain", "")]),
    (r"resnet50\.forward/.*", [(1.15, "", ""), (1.05, "", "no_winograd")]),
    (r"resnet18\..*", 1.3, ""),
    (r"(lstm\.step|attention\.(forward|step))/.*", 1.2, ""),
    (r"gpt\.step/.*", 1.3, ""),
    (r"gpt\.step\.bf16/.*", 1.2, ""),
    (r"loader\..*", 10.0, ""),
    # Against another way of Athanor's own, with which the row's name ends.
    (r"data_parallel\.step/.*/one_thread", 1.8, "athanor otherwise"),
    (r"data_parallel\.step/.*/independent_halves", SHARE_OF_LIMIT, "athanor otherwise"),
    (r"pipeline\.step/.*/in_turns", 1.45, "athanor otherwise"),
    (r"pipeline\.step/.*/one_device", 0.78, "athanor otherwise"),
]

# (rows, least share of their physical limit by number of threads): beside their ratios, not instead.
SHARES = [
    (r"gemm\.f32/2048", {1: 0.94, 2: 0.92}),
    (r"(add|muladd|relu|sigmoid|clone|cat|broadcast_\w+)\.new/1e8", {1: 0.85, 2: 0.85}),
]

# Which figure of bench_limits bounds a row; {size} is what follows the last '/'.
LIMITS = [
    (r"(add|add_)\.(new|out)/.*|muladd\..*|addcmul\..*", "limit.add/{size}"),
    (r"(sum|mean|amax|max_index|argmax)\..*", "limit.read/{size}"),
    (r"(uniform|normal)\.fill/.*", "limit.fill/{size}"),
    (r"loader\.memory/.*", "limit.gather/{size}"),
    (r".*/1e[68]", "limit.copy/{size}"),
    (r"gemm\.bf16/.*", "limit.fma.bf16"),
    (r"gemm\.f64/.*", "limit.fma.f64"),
    (r"(gemm|conv|conv_blocked|attention)\..*", "limit.fma.f32"),
    (r"(lstm|gpt)\.step/.*", "limit.fma.f32"),
]

# Ways of bench_limits that store past the caches. As copies they bound no row of 1e6, whose results stay where the next
# operation finds them: docs/benchmarks.md.
PAST_CACHES = ("streaming", "pages", "ahead")

# Multiplications and additions of the products alone, forward and both gradients. LSTM, a step of one sequence: two
# layers whose four gates of 256 meet input and state of 256; no gradient of the first layer's input.
LSTM_STEP_FLOP = 3 * 2 * (2 * 512 * 1024) - 2 * 256 * 1024
# GPT, a token: four layers with 12 · 256² weights and causal attention over 64.5 keys on average, and the head.
GPT_STEP_FLOP = 3 * (4 * (2 * 12 * 256**2 + 4 * 64.5 * 256) + 2 * 256 * 65)

# Rows counted in something else than their limit: what an item at least takes of that, bytes or FLOP. A product and a
# sum after it, two operations, move six operands, of which the row counts four.
WORK_PER_ITEM = {"muladd.new": 1.5, "loader.memory": 8 * 784, "uniform.fill": 4, "normal.fill": 4, "cumsum": 8,
                 "cumsum.last": 8, "lstm.step": LSTM_STEP_FLOP, "gpt.step": GPT_STEP_FLOP}


def first_match(table: list, row: str):
    for entry in table:
        if re.fullmatch(entry[0], row):
            return entry
    return None


def targets_of(row: str) -> list:
    """(least ratio, part of the names of the peers that count, way of Athanor's own or '') of each target."""
    entry = first_match(TARGETS, row)
    if entry is None:
        return []
    return list(entry[1]) if isinstance(entry[1], list) else [(*entry[1:], "")]


def least_share_of(row: str, threads: int):
    """Share of its limit that a row has to reach by itself, or None."""
    entry = first_match(SHARES, row)
    return entry[1].get(threads) if entry else None


def limit_of(row: str):
    """Name of the row of bench_limits that bounds this row, or None. Sorting and selecting have no simple bound."""
    if row.startswith(("sort", "index_elements", "gather.", "topk", "median", "unique", "searchsorted", "randperm")):
        return None
    entry = first_match(LIMITS, row)
    return entry[1].format(size=row.rsplit("/", 1)[-1]) if entry else None


def bounds(limit: str, way: str) -> bool:
    """Whether this way of the row `limit` of bench_limits bounds the rows that limit_of gives it."""
    return limit != "limit.copy/1e6" or way not in PAST_CACHES


def work_against_limit(row: str, items: float) -> float:
    """Items of a row in the unit of its limit."""
    return items * WORK_PER_ITEM.get(row.split("/")[0], 1)
