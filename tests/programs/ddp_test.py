"""examples/ddp.cpp: it learns the line by itself and under `athanor run`, and the guide shows it as it is."""

import os
import subprocess
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BIN = os.environ["ATHANOR_BIN"]
DEADLINE_S = 60


def output_of(*command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment,
                          timeout=DEADLINE_S).stdout


class Example(unittest.TestCase):
    def test_two_ranks_of_its_own_learn_the_line(self):
        self.assertEqual(output_of(os.path.join(BIN, "ddp")), "y = 3.000 x -2.000, by 2 ranks\n")

    def test_three_ranks_of_the_launcher_learn_it_too(self):
        output = output_of(os.path.join(BIN, "athanor"), "run", "--nproc-per-node", "3", os.path.join(BIN, "ddp"))
        self.assertEqual(output.count("y = 3.000 x -2.000, by 3 ranks"), 1, output)

    def test_the_guide_shows_the_program_as_it_is(self):
        with open(os.path.join(ROOT, "examples", "ddp.cpp"), encoding="utf-8") as file:
            program = file.read()
        with open(os.path.join(ROOT, "docs", "distributed.md"), encoding="utf-8") as file:
            guide = file.read()
        self.assertIn("```cpp\n" + program[program.index("#include"):] + "```\n", guide)


if __name__ == "__main__":
    unittest.main(verbosity=2)
