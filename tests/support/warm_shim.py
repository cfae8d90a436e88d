"""``holeshot`` as a process that is cheap to start: it has the warm parent fork the command, and ends as that does.

Run by ``tests.support.warm.holeshot``, without what ``site`` would import.
"""

import json
import os
import select
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM)


def main(address: str, *arguments: str) -> int:
    """Run the command with this process's files, folder and environment; return its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as parent:
        parent.connect(f"\0{address}")
        asked = {"arguments": arguments, "cwd": os.getcwd(), "env": dict(os.environ)}  # noqa: PTH109 - pathlib takes longer
        socket.send_fds(parent, [json.dumps(asked).encode()], [0, 1, 2])
        pid = int(parent.recv(64))
        wakes, wake = socket.socketpair()
        wake.setblocking(False)  # noqa: FBT003 - its only argument
        signal.set_wakeup_fd(wake.fileno())  # a handler in Python runs too late for a signal just before a wait
        for number in FORWARDED:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):  # whoever reads them sees the command's end
            os.dup2(nothing, file)
        while parent not in select.select([parent, wakes], [], [])[0]:
            for signalled in wakes.recv(64):
                os.kill(pid, signalled)
        return int(parent.recv(64).partition(b" ")[0])


code = main(*sys.argv[1:])
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
