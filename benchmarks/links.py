#!/usr/bin/env python3
"""Data-parallel training over a slow network: does the exchange of gradients hide behind backward, and what does halving
them bring? Two ranks, one thread each, in two network namespaces whose link is held to a rate (tc tbf); the steps of
PyTorch's MNIST example, 4.8 MB of gradients. Needs root and iproute2.

    benchmarks/links.py [--rounds 3]

The sides take turns. Prints the ratios of step times and writes build/bench/links.json.

    1 Gbit/s     reduced while backward runs, against reduced at its end: computing and sending take about as long
    100 Mbit/s   sent as float16 (comm_hooks::fp16_compress_hook), against float32
"""

import argparse
import json
import os
import statistics
import subprocess

import collectives

CASES = [
    # rate, name, flags of the side, flags of what it is compared with, what the ratio should not exceed
    ("1gbit", "reduced beside backward / at its end", ["--overlap"], ["--no-overlap"], 0.8),
    ("100mbit", "float16 hook / none", ["--overlap", "--fp16"], ["--overlap"], 0.65),
]


def hold_to_rate(namespaces, rate: str):
    for name in namespaces.names:
        subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "veth0", "root", "tbf", "rate", rate,
                        "burst", "128kb", "latency", "50ms"], check=True)


def step_ms(arguments, namespaces, flags: list) -> float:
    command = [os.path.join(arguments.build, "bin", "bench_ddp"), "--blocks", str(arguments.blocks), "--steps",
               str(arguments.steps), "--warm-up", "3", "--batch", str(arguments.batch), *flags]
    output = collectives.run_ranks(command, arguments, namespaces, {"ATHANOR_SOCKET_IFNAME": "veth0"})
    return json.loads(output.splitlines()[-1])["step_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of every side")
    parser.add_argument("--blocks", type=int, default=5, help="timings per turn")
    parser.add_argument("--steps", type=int, default=4, help="steps of a timing")
    parser.add_argument("--batch", type=int, default=64, help="images per rank")
    parser.add_argument("--rates", default="1gbit,100mbit", help="those of the cases to run")
    parser.add_argument("--build", default=os.path.join(collectives.ROOT, "build"))
    parser.add_argument("--timeout", type=float, default=300, help="seconds a side may take for one turn")
    arguments = parser.parse_args()
    arguments.ranks = 2
    results = []
    with collectives.Namespaces() as namespaces:
        for rate, name, flags, other, wanted in CASES:
            if rate not in arguments.rates.split(","):
                continue
            hold_to_rate(namespaces, rate)
            times = {"side": [], "other": []}
            for _ in range(arguments.rounds):
                times["other"].append(step_ms(arguments, namespaces, other))
                times["side"].append(step_ms(arguments, namespaces, flags))
            side, compared = statistics.median(times["side"]), statistics.median(times["other"])
            print(f"{rate:8} {name:40} {side:7.1f} ms / {compared:7.1f} ms = {side / compared:.2f}  (should be at most {wanted})")
            results.append({"rate": rate, "name": name, "ratio": side / compared, "at_most": wanted, "step_ms": times})
    folder = os.path.join(arguments.build, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "links.json"), "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
