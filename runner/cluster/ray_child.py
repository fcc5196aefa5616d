"""Becomes `ray ARGUMENTS`, and ends with whoever started it: `python -m runner.cluster.ray_child ARGUMENTS`.

The kernel sends this process SIGTERM when its parent dies, however that comes; `ray start --block` then ends
everything that it has started.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the signal, and become Ray."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it died before it could be told of
    os.execv(sys.executable, [sys.executable, "-m", "ray.scripts.scripts", *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    main()
