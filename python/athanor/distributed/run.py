"""`python -m athanor.distributed.run --nproc-per-node=2 train.py`: torchrun's command line; docs/launcher.md."""
from __future__ import annotations

import sys

from ._launcher import become


def main(args=None) -> None:
    """Runs the launcher in the place of this process."""
    become("run", list(sys.argv[1:] if args is None else args))


if __name__ == "__main__":
    main()
