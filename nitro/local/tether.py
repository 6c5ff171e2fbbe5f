"""Runs a command that dies with its parent; started as a file, without our packages.

    python -I -S tether.py PARENT_PID SIGNAL COMMAND [ARGUMENT ...]

On Linux this process asks the kernel for a signal at its parent's end, however that happens; then
it becomes the command. The request survives `exec`. On other systems the parent's clean-up must
suffice. A separate process, unlike a `preexec_fn`, keeps the fork safe in threaded programs. The
kernel watches the *thread* that forked: start tethered children from a permanent thread.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent and become the command."""
    parent, death_signal, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before the request was made
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
