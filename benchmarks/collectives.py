#!/usr/bin/env python3
"""Collectives beside those of Open MPI and of PyTorch with Gloo: the same sizes, the same ranks, in turns, so that a busy
moment of the machine hits all alike. Prints ratios (how many times as fast as the peer): of the mean time of a call and,
up to 64 KB, of the median (p50); from 1 MB on also the share of the limit: all_reduce on this machine of a copy in
memory, send_recv over the network of a bare connection. Writes build/bench/collectives.json.

    benchmarks/collectives.py                      two ranks on this machine
    benchmarks/collectives.py --ranks 4 --sizes 8,4096,65536
    benchmarks/collectives.py --network            ranks in two network namespaces (needs root): TCP
    ATHANOR_PEER_PYTHON=/path/to/python …          with the PyTorch of that interpreter (colon-separated) and the system's

A peer that is not installed is left out, by name.
"""

import argparse
import collections
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

from peer_pythons import named_pythons, version_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = os.path.join(ROOT, "benchmarks", "peers")
SMALL, MEDIUM = 1 << 16, 1 << 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--ops", default="all_reduce,broadcast,all_gather,reduce_scatter,send_recv,barrier")
    parser.add_argument("--sizes", default="8,4096,65536,1048576,16777216,104857600", help="bytes")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every side")
    parser.add_argument("--repeats", type=int, default=5, help="timings per turn")
    parser.add_argument("--seconds", type=float, default=0.03, help="least length of a timing")
    parser.add_argument("--network", action="store_true", help="one rank in each of two network namespaces")
    parser.add_argument("--without", default="", help="sides to leave out, separated by commas")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--timeout", type=float, default=600, help="seconds a side may take for one turn")
    return parser.parse_args()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class Namespaces:
    """Two network namespaces, joined by pairs of virtual interfaces: veth0 and so on, each a network of its own."""

    def __init__(self, cables: int = 1):
        self.names = [f"athanor{os.getpid()}{side}" for side in "ab"]
        self.cables = cables

    def __enter__(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        for cable in range(self.cables):
            links = [f"ath{os.getpid() % 100000}{side}" for side in "ab"]
            subprocess.run(["ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1]], check=True)
            for name, link, address in zip(self.names, links, self.addresses(cable)):
                subprocess.run(["ip", "link", "set", link, "netns", name], check=True)
                inside, veth = ["ip", "-n", name], f"veth{cable}"
                subprocess.run([*inside, "link", "set", link, "name", veth], check=True)
                subprocess.run([*inside, "addr", "add", address + "/24", "dev", veth], check=True)
                subprocess.run([*inside, "link", "set", veth, "up"], check=True)
        return self

    @staticmethod
    def addresses(cable: int = 0):
        return [f"10.253.{7 + cable}.{side}" for side in (1, 2)]

    def __exit__(self, *unused):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def run_ranks(command: list, arguments, namespaces, environment: dict) -> str:
    """What rank 0 printed."""
    host = namespaces.addresses()[0] if namespaces else "127.0.0.1"
    common = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(arguments.ranks), "MASTER_ADDR": host,
              "MASTER_PORT": str(free_port()), **environment}
    ranks = []
    for rank in range(arguments.ranks):
        inside = ["ip", "netns", "exec", namespaces.names[rank % 2]] if namespaces else []
        ranks.append(subprocess.Popen([*inside, *command], env={**common, "RANK": str(rank)}, text=True,
                                      stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    try:
        output = ranks[0].communicate(timeout=arguments.timeout)[0]
        failed = [str(i) for i, rank in enumerate(ranks) if rank.wait(timeout=30) != 0]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    if failed:
        raise RuntimeError(f"{' '.join(command[:3])} failed on rank {', '.join(failed)}")
    return output


def athanor_side(arguments, namespaces, extra: list, ops: str, sizes: str) -> list:
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        command = [os.path.join(arguments.build, "bin", "athanor"), "bench", "collectives", "--ops", ops, "--sizes", sizes,
                   "--rounds", str(arguments.repeats), "--seconds", str(arguments.seconds), "--json", result, *extra]
        run_ranks(command, arguments, namespaces, {})
        with open(result) as file:
            return json.load(file)


def measurements(output: str) -> list:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def torch_side(arguments, namespaces, python: str) -> list:
    command = [python, os.path.join(PEERS, "torch_collectives.py"), str(arguments.seconds), str(arguments.repeats),
               arguments.ops, arguments.sizes]
    environment = {"GLOO_SOCKET_IFNAME": "veth0" if namespaces else "lo"}
    return measurements(run_ranks(command, arguments, namespaces, environment))


def mpi_side(arguments, program: str) -> list:
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(arguments.ranks), program,
               str(arguments.seconds), str(arguments.repeats), arguments.ops, arguments.sizes]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, text=True,
                          capture_output=True, timeout=arguments.timeout)
    return measurements(done.stdout)


def torch_interpreters() -> dict:
    found = {}
    for python in dict.fromkeys([*named_pythons(), "/usr/bin/python3"]):
        version = version_of(python, "torch.distributed")
        if version:
            found.setdefault(f"gloo (PyTorch {version})", python)
        else:
            print(f"left out: Gloo through {python}, which has no PyTorch")
    return found


def sides_of(arguments, namespaces) -> dict:
    ops = arguments.ops + (",connection" if namespaces else ",copy")
    sides = {"athanor": lambda: athanor_side(arguments, namespaces, [], ops, arguments.sizes)}
    large = [size for size in arguments.sizes.split(",") if int(size) >= MEDIUM]
    if not namespaces and large and "all_reduce" in arguments.ops:
        sides["athanor, shared buffers"] = lambda: athanor_side(arguments, None, ["--shared"], "all_reduce", ",".join(large))
    for name, python in torch_interpreters().items():
        sides[name] = lambda python=python: torch_side(arguments, namespaces, python)
    if namespaces:
        print("left out: Open MPI, which is not compared over namespaces")
    elif shutil.which("mpirun") and shutil.which("mpicxx"):
        program = os.path.join(arguments.build, "bench", "mpi_collectives")
        os.makedirs(os.path.dirname(program), exist_ok=True)
        subprocess.run(["mpicxx", "-O2", "-std=c++17", "-o", program, os.path.join(PEERS, "mpi_collectives.cpp")], check=True)
        sides["mpi"] = lambda: mpi_side(arguments, program)
    else:
        print("left out: MPI, which has no mpirun or mpicxx here")
    return {name: run for name, run in sides.items() if name not in arguments.without.split(",")}


def collect(arguments, namespaces) -> dict:
    """(op, bytes) -> side -> "seconds" and, where the side tells, "p50" -> those of each turn."""
    sides = sides_of(arguments, namespaces)
    table = collections.defaultdict(dict)
    for turn in range(arguments.rounds):
        for name, run in sides.items():
            for row in run():
                figures = table[row["op"], row["bytes"]].setdefault(name, {})
                for figure in ("seconds", "p50"):
                    if figure in row:
                        figures.setdefault(figure, []).append(row[figure])
        print(f"# turn {turn + 1} of {arguments.rounds} done", file=sys.stderr)
    return table


def ratio(row: dict, peer: str, side: str, figure: str) -> str:
    """How many times as fast as the peer the side is, by medians over the turns; "-" where one does not tell."""
    if figure not in row.get(peer, {}) or figure not in row[side]:
        return "-"
    return f"{statistics.median(row[peer][figure]) / statistics.median(row[side][figure]):.2f}"


def table_lines(table: dict) -> list:
    names = sorted({side for row in table.values() for side in row if not side.startswith("athanor")})
    heads = [f"{'x ' + name:>22} {'p50':>6}" for name in names]
    lines = [" ".join([f"{'op':15} {'bytes':>10} {'athanor us':>11} {'p50 us':>9}", *heads, "  of the limit"])]
    limits = {"send_recv": "connection"} if any(op == "connection" for op, _ in table) else {"all_reduce": "copy"}
    for (op, size), row in table.items():
        if op in ("copy", "connection") or "athanor" not in row:
            continue
        for side in ("athanor", "athanor, shared buffers"):
            if side not in row:
                continue
            own = {figure: statistics.median(values) for figure, values in row[side].items()}
            p50 = f"{own['p50'] * 1e6:.2f}" if size <= SMALL and "p50" in own else ""
            ratios = [f"{ratio(row, name, side, 'seconds'):>22} "
                      f"{ratio(row, name, side, 'p50') if size <= SMALL else '':>6}" for name in names]
            limit = table.get((limits.get(op), size), {}).get("athanor")
            share = f"{statistics.median(limit['seconds']) / own['seconds']:.0%}" if limit and size >= MEDIUM else ""
            label = op if side == "athanor" else op + " shared"
            lines.append(" ".join([f"{label:15} {size:>10} {own['seconds'] * 1e6:>11.2f} {p50:>9}", *ratios, " ",
                                   share]).rstrip())
    return lines


def main():
    arguments = parse_arguments()
    with Namespaces() if arguments.network else contextlib.nullcontext() as namespaces:
        table = collect(arguments, namespaces)
    print("\n".join(table_lines(table)))
    folder = os.path.join(arguments.build, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "collectives.json"), "w") as file:
        json.dump([{"op": op, "bytes": size, "seconds": {side: figures["seconds"] for side, figures in row.items()},
                    "p50": {side: figures["p50"] for side, figures in row.items() if "p50" in figures}}
                   for (op, size), row in table.items()], file, indent=1)


if __name__ == "__main__":
    main()
