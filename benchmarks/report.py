"""From timings to verdicts: medians, ratios to the best peer, shares of physical limits, tables."""

import statistics

from targets import SHARE_OF_LIMIT, limit_of, target_of, work_against_limit


def median_rate(answer: dict) -> float:
    """Items per second."""
    return answer["items_per_iter"] / statistics.median(answer["seconds"])


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
        # The best among peers that run the very same program, without another layout or the like.
        self.same_way_rate = best_of({n: r for n, r in counted.items() if " @" not in n or "@workers" in n})[1]
        self.limit_name = limit_of(row)
        self.limit = limits.get(self.limit_name)

    @property
    def ratio(self):
        return self.ours / self.peer_rate if self.ours and self.peer_rate else None

    @property
    def same_way_ratio(self):
        return self.ours / self.same_way_rate if self.ours and self.same_way_rate else None

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
                "best_peer": self.best_peer, "ratio": self.ratio, "ratio_same_program": self.same_way_ratio,
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


def table_cells(result: RowResult) -> tuple:
    def times(value):
        return f"{value:.2f} x" if value is not None else "-"

    return (result.row, str(result.threads), human_rate(result.ours, result.unit),
            human_rate(result.peer_rate, result.unit), result.best_peer or "-", times(result.ratio),
            times(result.same_way_ratio) if result.same_way_ratio != result.ratio else "",
            f">= {result.target:.2f}" if result.target else "",
            f"{100 * result.share_of_limit:.0f} %" if result.share_of_limit is not None else "", result.verdict)


def format_line(cells: tuple) -> str:
    widths = (46, 4, 14, 14, 34, 9, 13, 8, 9, 12)
    return "  ".join(c.rjust(w) if 1 <= i <= 8 and i != 4 else c.ljust(w)
                     for i, (c, w) in enumerate(zip(cells, widths))).rstrip()


def markdown(results: list) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(table_cells(r)) + " |" for r in results]
    return "\n".join(lines) + "\n"
