"""From timings to verdicts: medians, ratios to the best peer, shares of physical limits, tables."""

import statistics

from targets import SHARE_OF_LIMIT, limit_of, target_of, work_against_limit


def median_rate(answer: dict) -> float:
    """Items per second."""
    return answer["items_per_iter"] / statistics.median(answer["seconds"])


def best_rate(answer: dict) -> float:
    return answer["items_per_iter"] / min(answer["seconds"])


def best_of(rates: dict):
    """(name, rate) of the fastest, or (None, None)."""
    return max(rates.items(), key=lambda item: item[1]) if rates else (None, None)


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
        self.ours = best_of({n: r for n, r in self.rates.items() if n.split(" @")[0] == "athanor"})[1]
        target = target_of(row)
        self.target, self.peer_part = target if target else (None, "")
        counted = {n: r for n, r in self.rates.items() if n.split(" @")[0] in peers and self.peer_part in n}
        self.best_peer, self.peer_rate = best_of(counted)
        # Without another layout or the like on either side.
        plain = {n: r for n, r in self.rates.items() if " @" not in n or "@workers" in n}
        self.same_way_ours = plain.get("athanor", self.ours)
        self.same_way_rate = best_of({n: r for n, r in plain.items() if n in counted})[1]
        self.limit_name = limit_of(row)
        self.limit = limits.get(self.limit_name)

    @property
    def ratio(self):
        return self.ours / self.peer_rate if self.ours and self.peer_rate else None

    @property
    def same_way_ratio(self):
        return self.same_way_ours / self.same_way_rate if self.same_way_ours and self.same_way_rate else None

    @property
    def share_of_limit(self):
        fastest = self.ours or self.peer_rate
        if not self.limit or not fastest:
            return None
        return work_against_limit(self.row, fastest) / self.limit

    @property
    def verdict(self) -> str:
        if self.target is None or self.ratio is None:
            return ""
        if self.ratio >= self.target:
            return "met"
        if self.share_of_limit is not None and self.share_of_limit >= SHARE_OF_LIMIT:
            return "met by limit"
        return "MISSED"

    def as_json(self) -> dict:
        def figures(answer):
            seconds = sorted(answer["seconds"])
            return {"median_s": statistics.median(seconds), "best_s": seconds[0], "worst_s": seconds[-1],
                    "samples": len(seconds)}

        return {"name": self.row, "threads": self.threads, "unit": self.unit, "items_per_iter": self.items,
                "sides": {side + (f" @{way}" if way else ""): figures(answer)
                          for side, ways in self.answers.items() for way, answer in ways.items()},
                "rate": self.ours, "peer_rate": self.peer_rate, "best_peer": self.best_peer, "ratio": self.ratio, "ratio_same_program": self.same_way_ratio,
                "target": self.target, "limit": self.limit_name, "share_of_limit": self.share_of_limit,
                "verdict": self.verdict}


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


def table_cells(row: dict) -> tuple:
    """The cells of one line, from RowResult.as_json()."""
    def times(value):
        return f"{value:.2f} x" if value is not None else "-"

    share = row["share_of_limit"]
    same = row["ratio_same_program"]
    return (row["name"], str(row["threads"]), human_rate(row["rate"], row["unit"]),
            human_rate(row["peer_rate"], row["unit"]), row["best_peer"] or "-", times(row["ratio"]),
            times(same) if same != row["ratio"] else "", f">= {row['target']:.2f}" if row["target"] else "",
            f"{100 * share:.0f} %" if share is not None else "", row["verdict"])


def format_line(cells: tuple) -> str:
    widths = (46, 4, 14, 14, 34, 9, 13, 8, 9, 12)
    return "  ".join(c.rjust(w) if 1 <= i <= 8 and i != 4 else c.ljust(w)
                     for i, (c, w) in enumerate(zip(cells, widths))).rstrip()


def markdown(rows: list) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(table_cells(row)) + " |" for row in rows]
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
