"""From timings to verdicts: medians, ratios to the best peer, shares of physical limits, tables."""

import statistics

from targets import SEPARATE_WAYS, SHARE_OF_LIMIT, least_share_of, limit_of, targets_of, work_against_limit


def median_rate(answer: dict) -> float:
    """Items per second."""
    return answer["items_per_iter"] / statistics.median(answer["seconds"])


def best_rate(answer: dict) -> float:
    return answer["items_per_iter"] / min(answer["seconds"])


def best_of(rates: dict):
    """(name, rate) of the fastest, or (None, None)."""
    return max(rates.items(), key=lambda item: item[1]) if rates else (None, None)


class Target:
    """One ratio that a row has to reach, or none, and how it stands."""

    def __init__(self, rates: dict, peers: set, share_of_limit, least=None, peer_part: str = "", way: str = ""):
        def is_counted(name: str) -> bool:
            side, _, its_way = name.partition(" @")
            return side == "athanor" and (its_way == way if way else its_way not in SEPARATE_WAYS)

        self.least, self.way, self.share_of_limit = least, way, share_of_limit
        self.ours = best_of({n: r for n, r in rates.items() if is_counted(n)})[1]
        counted = {n: r for n, r in rates.items() if n.split(" @")[0] in peers and peer_part in n}
        self.best_peer, self.peer_rate = best_of(counted)
        # Without another layout or the like on either side.
        plain = {n: r for n, r in rates.items() if " @" not in n or "@workers" in n}
        self.same_way_ours = self.ours if way else plain.get("athanor", self.ours)
        self.same_way_rate = best_of({n: r for n, r in plain.items() if n in counted})[1]

    @property
    def ratio(self):
        return self.ours / self.peer_rate if self.ours and self.peer_rate else None

    @property
    def same_way_ratio(self):
        return self.same_way_ours / self.same_way_rate if self.same_way_ours and self.same_way_rate else None

    @property
    def verdict(self) -> str:
        if self.least is None or self.ratio is None:
            return ""
        if self.ratio >= self.least:
            return "met"
        if self.share_of_limit is not None and self.share_of_limit >= SHARE_OF_LIMIT:
            return "met by limit"
        return "MISSED"

    def as_json(self) -> dict:
        return {"way": self.way, "rate": self.ours, "peer_rate": self.peer_rate, "best_peer": self.best_peer,
                "ratio": self.ratio, "ratio_same_program": self.same_way_ratio, "target": self.least,
                "verdict": self.verdict}


class ShareTarget:
    """The share of its physical limit that a row has to reach, in the columns of a Target."""

    def __init__(self, rate, limit, limit_name, share_of_limit, least):
        self.rate, self.limit, self.limit_name, self.ratio, self.least = rate, limit, limit_name, share_of_limit, least

    @property
    def verdict(self) -> str:
        return "" if self.ratio is None else "met" if self.ratio >= self.least else "MISSED"

    def as_json(self) -> dict:
        return {"way": "", "rate": self.rate, "peer_rate": self.limit, "best_peer": self.limit_name, "ratio": self.ratio,
                "ratio_same_program": self.ratio, "target": self.least, "verdict": self.verdict}


class RowResult:
    """All answers about one row at one thread count. `answers`: side -> {way ('' or what follows '@') -> answer}."""

    def __init__(self, row: str, threads: int, answers: dict, peers: set, limits: dict):
        self.row, self.threads, self.answers = row, threads, answers
        self.rates = {}
        for side, ways in answers.items():
            for way, answer in ways.items():
                self.rates[side + (f" @{way}" if way else "")] = median_rate(answer)
        any_answer = next(iter(next(iter(answers.values())).values()))
        self.unit, self.items = any_answer["unit"], any_answer["items_per_iter"]
        self.limit_name = limit_of(row)
        self.limit = limits.get(self.limit_name)
        whole = Target(self.rates, peers, None)
        fastest = whole.ours or whole.peer_rate
        self.share_of_limit = work_against_limit(row, fastest) / self.limit if self.limit and fastest else None
        self.targets = [Target(self.rates, peers, self.share_of_limit, *t) for t in targets_of(row)] or [whole]
        least_share = least_share_of(row, threads)
        self.share_targets = [] if least_share is None else [
            ShareTarget(fastest, self.limit, self.limit_name, self.share_of_limit, least_share)]

    @property
    def hardest(self) -> Target:
        """The target that is furthest from being reached, of those that could be looked at."""
        known = [t for t in self.targets if t.ratio is not None] or self.targets[:1]
        return min(known, key=lambda t: t.ratio / t.least if t.ratio and t.least else 0)

    @property
    def best_peer(self):
        return self.hardest.best_peer

    @property
    def ratio(self):
        return self.hardest.ratio

    @property
    def same_way_ratio(self):
        return self.hardest.same_way_ratio

    @property
    def verdict(self) -> str:
        return "MISSED" if any(t.verdict == "MISSED" for t in self.share_targets) else self.hardest.verdict

    def as_json(self) -> dict:
        def figures(answer):
            seconds = sorted(answer["seconds"])
            return {"median_s": statistics.median(seconds), "best_s": seconds[0], "worst_s": seconds[-1],
                    "samples": len(seconds)}

        return {"name": self.row, "threads": self.threads, "unit": self.unit, "items_per_iter": self.items,
                "sides": {side + (f" @{way}" if way else ""): figures(answer)
                          for side, ways in self.answers.items() for way, answer in ways.items()},
                "limit": self.limit_name, "share_of_limit": self.share_of_limit, **self.hardest.as_json(),
                "verdict": self.verdict, "targets": [t.as_json() for t in self.targets + self.share_targets]}


def human_rate(rate, unit: str) -> str:
    if rate is None:
        return "-"
    if unit == "call":
        return f"{1e9 / rate:.0f} ns" if rate > 1e5 else f"{1e6 / rate:.1f} us"
    names = {"B": "B/s", "FLOP": "FLOP/s"}
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}{names.get(unit, unit + '/s')}"
    return f"{rate:.3g} {names.get(unit, unit + '/s')}"


HEADINGS = ("row", "thr", "athanor", "best peer", "", "ratio", "same program", "target", "of limit", "")


def table_lines(row: dict) -> list:
    """The cells of a row's lines, one for each of its targets, from RowResult.as_json()."""
    def times(value):
        return f"{value:.2f} x" if value is not None else "-"

    share = row["share_of_limit"]
    lines = []
    for target in row.get("targets") or [row]:
        same, way = target["ratio_same_program"], target.get("way")
        lines.append((row["name"] + (f"@{way}" if way else ""), str(row["threads"]),
                      human_rate(target["rate"], row["unit"]), human_rate(target["peer_rate"], row["unit"]),
                      target["best_peer"] or "-", times(target["ratio"]), times(same) if same != target["ratio"] else "",
                      f">= {target['target']:.2f}" if target["target"] else "",
                      f"{100 * share:.0f} %" if share is not None else "", target["verdict"]))
    return lines


def format_line(cells: tuple) -> str:
    widths = (46, 4, 14, 14, 34, 9, 13, 8, 9, 12)
    return "  ".join(c.rjust(w) if 1 <= i <= 8 and i != 4 else c.ljust(w)
                     for i, (c, w) in enumerate(zip(cells, widths))).rstrip()


def markdown(rows: list) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cells) + " |" for row in rows for cells in table_lines(row)]
    return "\n".join(lines) + "\n"


def family_of(name: str) -> str:
    """Rows that share a line in the summary: 'gemm.f32/64' and 'gemm.f32/128' are both 'gemm.f32'."""
    family = name.split("/")[0]
    if family.startswith(("conv", "conv_blocked")):
        family += " " + name.split("/")[1].split(".")[0]
    return family if family.startswith(("gemm", "conv", "conv_blocked")) else name


def summary(document: dict) -> str:
    """A short table for the README, from results.json: ratios of the rows that have a target."""
    families = {}
    for row in document["rows"]:
        if row["target"] and row["ratio"]:
            families.setdefault(family_of(row["name"]), []).append(row)
    lines = [f"{document['machine'].get('model name', 'this machine')}, {document['machine']['cpus']} CPUs; against "
             + ", ".join(document["peers"] + ["oneDNN"]) + f"; commit {document['machine']['commit']}.", "",
             "| row | times as fast as the best peer, 1 thread | 2 threads | target | share of the physical limit | |",
             "|---|---|---|---|---|---|"]
    for name, rows in families.items():
        cells = []
        for threads in (1, 2):
            ratios = sorted(r["ratio"] for r in rows if r["threads"] == threads)
            cells.append("" if not ratios else f"{ratios[0]:.2f}" if len(ratios) == 1 else
                         f"{ratios[0]:.2f} to {ratios[-1]:.2f}")
        shares = [r["share_of_limit"] for r in rows if r["share_of_limit"] is not None]
        limit = f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %" if shares else ""
        verdicts = sorted({r["verdict"] for r in rows})
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {rows[0]['target']:.2f} | {limit} | {', '.join(verdicts)} |")
    if document.get("product"):
        keys = (("start_up_ms", "start-up, ms"), ("memory_mb", "memory, MB"), ("library_mb", "library, MB"),
                ("compile_s", "compile time, s"), ("compile_memory_mb", "compiler's memory, MB"))
        lines += ["", "| trivial program | " + " | ".join(title for _, title in keys) + " |", "|" + "---|" * (len(keys) + 1)]
        lines += ["| " + figures["who"] + " | " + " | ".join(f"{figures[k]:.1f}" if k in figures else "-" for k, _ in keys)
                  + " |" for figures in document["product"]]
    return "\n".join(lines) + "\n"


def put_into_readme(path: str, text: str) -> None:
    begin, end = "<!-- measured:begin -->\n", "<!-- measured:end -->"
    with open(path, encoding="utf-8") as file:
        readme = file.read()
    head, _, rest = readme.partition(begin)
    _, _, tail = rest.partition(end)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + begin + text + end + tail)


def merge(old: dict, new: dict) -> dict:
    """`new`, with the rows of `old` that it does not measure again."""
    measured = {(row["name"], row["threads"]) for row in new["rows"]}
    kept = [row for row in old.get("rows", []) if (row["name"], row["threads"]) not in measured]
    return {**new, "rows": kept + new["rows"], "product": new["product"] or old.get("product", [])}
