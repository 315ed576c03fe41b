"""torchrun with the exit codes of all other commands: 128 + N after signal N, else that of the rank that failed first.

By itself torchrun answers a signal with a traceback and code 1: a batch system cannot tell that the run was saved.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

LOST = 1  # a rank was killed


def main(arguments: Sequence[str]) -> None:
    """Run a command as several ranks, and exit."""
    try:
        run.main(list(arguments))
    except SignalException as stopped:
        sys.exit(128 + int(stopped.sigval))
    except ChildFailedError as failed:
        _, failure = failed.get_first_failure()
        sys.exit(failure.exitcode if failure.exitcode > 0 else LOST)


if __name__ == "__main__":
    main(sys.argv[1:])
