"""The strict vendors were served from here; they are a package of their own now: ``python -m strict_vendors``."""

import shlex
import sys

sys.exit(f"strict vendors are a package of their own now: python -m strict_vendors {shlex.join(sys.argv[1:])}".rstrip())
