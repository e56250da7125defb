"""`python -m athanor.distributed.launch --nproc-per-node=2 train.py`: the old launcher, which gives each worker
--local-rank (or --local_rank, whichever the program mentions) unless --use-env is set."""
from __future__ import annotations

import sys

from ._launcher import become


def main(args=None) -> None:
    """Runs the launcher in the place of this process."""
    become("launch", list(sys.argv[1:] if args is None else args))


if __name__ == "__main__":
    main()
