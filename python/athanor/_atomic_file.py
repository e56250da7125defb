"""Files that appear under their names whole or not at all."""

from __future__ import annotations

import contextlib
import os
from typing import BinaryIO, Iterator, Union

from athanor import _C


@contextlib.contextmanager
def atomic_file(path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]) -> Iterator[BinaryIO]:
    """A file open for writing that takes the place of ``path`` at the end of the block. After an exception, and when the
    process is killed, what was there stays and nothing else is left.

    Raises:
        OSError: as when ``path`` is opened, and where it is no regular file.
    """
    whole = _C._io.AtomicFile(os.fsencode(path))
    with os.fdopen(os.dup(whole.descriptor()), "wb") as file:
        yield file
    whole.commit()
