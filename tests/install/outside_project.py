#!/usr/bin/env python3
"""Installs a build into a temporary prefix, moves the prefix, and builds and runs a project against it, once through
find_package(Athanor) and once through pkg-config. Nothing outside the temporary folder is written."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "project")


def run(command: list, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect_ok(program: str) -> None:
    printed = run([program])
    if printed != "ok\n":
        sys.exit(f"{program} printed {printed!r}")


def find_file(root: str, name: str) -> str:
    for folder, _, files in os.walk(root):
        if name in files:
            return os.path.join(folder, name)
    sys.exit(f"{name} was not installed below {root}")


def build_with_cmake(arguments, prefix: str, folder: str) -> None:
    flags = [f"-DCMAKE_CXX_FLAGS=-fsanitize={arguments.sanitize}"] if arguments.sanitize else []
    run([arguments.cmake, "-S", PROJECT, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
         f"-DCMAKE_CXX_COMPILER={arguments.compiler}", *flags])
    run([arguments.cmake, "--build", folder])
    expect_ok(os.path.join(folder, "outside"))
    expect_ok(os.path.join(folder, "outside_torch"))


def build_with_pkg_config(arguments, prefix: str, folder: str) -> None:
    library_folder = os.path.dirname(find_file(prefix, "libathanor.so"))
    environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(find_file(prefix, "athanor.pc")))
    flags = run(["pkg-config", "--cflags", "--libs", "athanor"], env=environment).split()
    if arguments.sanitize:
        flags.append(f"-fsanitize={arguments.sanitize}")
    os.makedirs(folder)
    program = os.path.join(folder, "outside")
    # CMake's package makes its headers system headers; here their warnings count.
    run([arguments.compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", os.path.join(PROJECT, "main.cpp"), "-o", program, *flags,
         f"-Wl,-rpath,{library_folder}"])
    expect_ok(program)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--sanitize", default="")
    arguments = parser.parse_args()
    if not shutil.which(arguments.compiler):
        print(f"SKIP: there is no {arguments.compiler}")
        return 77
    if not shutil.which("pkg-config"):
        print("SKIP: pkg-config is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        first, prefix = os.path.join(folder, "first"), os.path.join(folder, "moved")
        environment = {name: value for name, value in os.environ.items() if name != "DESTDIR"}
        run([arguments.cmake, "--install", arguments.build, "--prefix", first], env=environment)
        os.rename(first, prefix)
        build_with_cmake(arguments, prefix, os.path.join(folder, "with_cmake"))
        build_with_pkg_config(arguments, prefix, os.path.join(folder, "with_pkg_config"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
