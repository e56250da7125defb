"""What a user meets before the first tensor: start-up, memory, sizes and compile times, beside libtorch's."""

import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from check_budgets import Usage, stripped_size_mb  # noqa: E402


def start_up(program: str) -> dict:
    usages = [Usage([program]) for _ in range(10)]
    if any(u.status for u in usages):
        return {}
    usages.sort(key=lambda u: u.wall_s)
    return {"start_up_ms": 1e3 * usages[len(usages) // 2].wall_s, "memory_mb": min(u.memory_mb for u in usages)}


def compile_cost(command: list, folder: str) -> dict:
    usage = Usage(command + ["-o", os.path.join(folder, "program")])
    return {} if usage.status else {"compile_s": usage.cpu_s, "compile_memory_mb": usage.memory_mb}


def of_athanor(build: str, folder: str) -> dict:
    figures = {"who": "athanor"}
    program = os.path.join(build, "bin", "trivial_program")
    library = os.path.join(build, "lib", "libathanor.so")
    if os.path.exists(program):
        figures.update(start_up(program))
    if os.path.exists(library):
        figures["library_mb"] = stripped_size_mb(library)
    source = os.path.join(ROOT, "tests/checks/programs/trivial.cpp")
    figures.update(compile_cost(["g++", "-O2", "-std=c++20", f"-I{ROOT}", f"-I{build}/generated", source,
                                 f"-L{build}/lib", "-lathanor", f"-Wl,-rpath,{build}/lib"], folder))
    return figures


def of_libtorch(torch, build: str, folder: str) -> dict:
    figures = {"who": f"libtorch {torch.short_version}"}
    built = torch.build_cpp("libtorch_trivial.cpp", os.path.join(build, "bench"))
    if built is None:
        return figures
    program, command = built
    figures.update(start_up(program))
    figures.update(compile_cost(command, folder))
    for candidate in (os.path.join(torch.folder, "lib/libtorch_cpu.so"), "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so"):
        if os.path.exists(candidate):
            figures["library_mb"] = os.path.getsize(os.path.realpath(candidate)) / 1e6
            break
    return figures


def measure_product(build: str, torches: list) -> list:
    columns = (("start_up_ms", "start-up ms"), ("memory_mb", "memory MB"), ("library_mb", "library MB"),
               ("compile_s", "compile s"), ("compile_memory_mb", "compiler MB"))
    with tempfile.TemporaryDirectory() as folder:
        table = [of_athanor(build, folder)] + [of_libtorch(torch, build, folder) for torch in torches]
    print("\ntrivial program".ljust(21) + "".join(title.rjust(14) for _, title in columns))
    for figures in table:
        print(figures["who"].ljust(20) + "".join(
            (f"{figures[key]:.1f}" if key in figures else "-").rjust(14) for key, _ in columns))
    return table
