"""What every benchmark of ours needs before it starts servers."""

import argparse
import resource
import signal
import sys

from benchmarks.harness.nginx import FILES


def prepare(parser: argparse.ArgumentParser) -> None:
    """See that this is Linux, that a crowd gets its sockets, and that servers are stopped when we are."""
    if sys.platform != "linux":
        parser.exit(1, "CPU time and memory are read from Linux's /proc; run it on Linux, or in a container\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, FILES), most))  # inherited by the servers
