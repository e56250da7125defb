"""examples/dist_tutorial.cpp: every program of the tutorial, on several numbers of ranks."""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from program_test import DEADLINE_S  # noqa: E402

BIN = os.environ["ATHANOR_BIN"]


def lines_of(program: str, ranks: int) -> list:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([os.path.join(BIN, "dist_tutorial"), "--ranks", str(ranks), program], capture_output=True, text=True,
                          env=environment, timeout=DEADLINE_S)
    if done.returncode != 0:
        raise AssertionError(f"{program} on {ranks} ranks ended with {done.returncode}: {done.stderr}")
    return sorted(done.stdout.splitlines())


class Tutorial(unittest.TestCase):
    def test_both_ranks_have_what_was_sent(self):
        for program in ("send_recv", "isend_irecv"):
            self.assertEqual(lines_of(program, 2), ["rank 0 of 2 has 1", "rank 1 of 2 has 1"])

    def test_a_group_sums_over_its_members_only(self):
        self.assertEqual(lines_of("all_reduce", 3), ["rank 0 of 3 has 2", "rank 1 of 3 has 2", "rank 2 of 3 has 1"])

    def test_rings_equal_the_built_in_collective(self):
        for program in ("ring", "chunked_ring"):
            for ranks in (1, 2, 3, 4, 8):
                self.assertEqual(len(lines_of(program, ranks)), ranks)

    def test_synchronous_sgd_is_as_good_on_every_number_of_ranks(self):
        accuracies = []
        for ranks in (1, 2, 4):
            lines = lines_of("sync_sgd", ranks)
            losses = [float(re.search(r"epoch \d+: (.*)", line).group(1)) for line in lines
                      if line.startswith("rank 0 ")]
            self.assertEqual(len(losses), 8)
            self.assertLess(losses[-1], 0.2 * losses[0])
            accuracies += [float(line.split()[1].rstrip("%")) for line in lines if line.startswith("accuracy ")]
        # The total batch is the same, its parts and their order are not.
        self.assertEqual(len(accuracies), 3)
        self.assertGreater(min(accuracies), 97)
        self.assertLessEqual(max(accuracies) - min(accuracies), 0.3, accuracies)

    def test_bandwidth_prints_a_line_per_size(self):
        self.assertEqual(len(lines_of("bandwidth", 2)), 5)

    def test_an_unknown_program_lists_the_known(self):
        done = subprocess.run([os.path.join(BIN, "dist_tutorial"), "nothing"], capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("chunked_ring", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
