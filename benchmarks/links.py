#!/usr/bin/env python3
"""Data-parallel training over a slow network: does the exchange of gradients hide behind backward, what does halving
them bring, and does a second network add its rate? Two ranks, one thread each, in two network namespaces whose links are
held to a rate (tc tbf); the steps of PyTorch's MNIST example, 4.8 MB of gradients, and all_reduce. Needs root and
iproute2.

    benchmarks/links.py [--rounds 3]

The sides take turns. Prints the ratios of step times and writes build/bench/links.json.

    1 Gbit/s     reduced while backward runs, against reduced at its end: computing and sending take about as long
    100 Mbit/s   sent as float16 (comm_hooks::fp16_compress_hook), against float32
    two links    all_reduce of 16 MB over two (ATHANOR_SOCKET_IFNAME names both), against the first alone: of one rate, and
                 the second slower
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

import collectives

CASES = [
    # rate, name, flags of the side, flags of what it is compared with, what the ratio should not exceed
    ("1gbit", "reduced beside backward / at its end", ["--overlap"], ["--no-overlap"], 0.8),
    ("100mbit", "float16 hook / none", ["--overlap", "--fp16"], ["--overlap"], 0.65),
]
TWO_LINKS = [
    # rates, what the ratio should not exceed
    (("200mbit", "200mbit"), 0.6),
    (("200mbit", "100mbit"), 0.85),
    (("200mbit", "50mbit"), 1.1),
    (("200mbit", "20mbit"), 1.5),
]
REDUCED = 16 << 20


def hold_to_rate(namespaces, rate: str, cable: int = 0):
    for name in namespaces.names:
        subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", f"veth{cable}", "root", "tbf", "rate",
                        rate, "burst", "128kb", "latency", "50ms"], check=True)


def step_ms(arguments, namespaces, flags: list) -> float:
    command = [os.path.join(arguments.build, "bin", "bench_ddp"), "--blocks", str(arguments.blocks), "--steps",
               str(arguments.steps), "--warm-up", "3", "--batch", str(arguments.batch), *flags]
    output = collectives.run_ranks(command, arguments, namespaces, {"ATHANOR_SOCKET_IFNAME": "veth0"})
    return json.loads(output.splitlines()[-1])["step_ms"]


def all_reduce_ms(arguments, namespaces, interfaces: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        command = [os.path.join(arguments.build, "bin", "athanor"), "bench", "collectives", "--ops", "all_reduce", "--sizes",
                   str(REDUCED), "--rounds", str(arguments.blocks), "--seconds", "0.3", "--json", result]
        collectives.run_ranks(command, arguments, namespaces, {"ATHANOR_SOCKET_IFNAME": interfaces})
        with open(result) as file:
            return json.load(file)[0]["seconds"] * 1e3


def in_turns(rounds: int, side, other) -> dict:
    times = {"side": [], "other": []}
    for _ in range(rounds):
        times["other"].append(other())
        times["side"].append(side())
    return times


def row(rate: str, name: str, times: dict, wanted: float) -> dict:
    side, compared = statistics.median(times["side"]), statistics.median(times["other"])
    print(f"{rate:15} {name:40} {side:7.1f} ms / {compared:7.1f} ms = {side / compared:.2f}  (should be at most {wanted})")
    return {"rate": rate, "name": name, "ratio": side / compared, "at_most": wanted, "ms": times}


def over_one_link(arguments) -> list:
    rows = []
    with collectives.Namespaces() as namespaces:
        for rate, name, flags, other, wanted in CASES:
            if rate not in arguments.rates.split(","):
                continue
            hold_to_rate(namespaces, rate)
            times = in_turns(arguments.rounds, lambda f=flags: step_ms(arguments, namespaces, f),
                             lambda f=other: step_ms(arguments, namespaces, f))
            rows.append(row(rate, name, times, wanted))
    return rows


def over_two_links(arguments) -> list:
    rows = []
    with collectives.Namespaces(2) as namespaces:
        for rates, wanted in TWO_LINKS:
            if "two" not in arguments.rates.split(","):
                continue
            for cable, rate in enumerate(rates):
                hold_to_rate(namespaces, rate, cable)
            times = in_turns(arguments.rounds, lambda: all_reduce_ms(arguments, namespaces, "veth0,veth1"),
                             lambda: all_reduce_ms(arguments, namespaces, "veth0"))
            rows.append(row("+".join(rates), "all_reduce over both links / the first", times, wanted))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of every side")
    parser.add_argument("--blocks", type=int, default=5, help="timings per turn")
    parser.add_argument("--steps", type=int, default=4, help="steps of a timing")
    parser.add_argument("--batch", type=int, default=64, help="images per rank")
    parser.add_argument("--rates", default="1gbit,100mbit,two", help="those of the cases to run")
    parser.add_argument("--build", default=os.path.join(collectives.ROOT, "build"))
    parser.add_argument("--timeout", type=float, default=300, help="seconds a side may take for one turn")
    arguments = parser.parse_args()
    arguments.ranks = 2
    results = over_one_link(arguments) + over_two_links(arguments)
    folder = os.path.join(arguments.build, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "links.json"), "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
