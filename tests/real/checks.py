"""What a script found out, said as it goes, and whether all of it was right."""

import sys


class Checks:
    """Prints each check, and remembers whether one failed."""

    def __init__(self) -> None:
        self._failed = 0

    def that(self, holds: bool, sentence: str) -> None:
        """Say whether ``sentence`` holds."""
        self._failed += not holds
        sys.stdout.write(f"{'ok    ' if holds else 'FAILED'}  {sentence}\n")
        sys.stdout.flush()

    def exit_code(self) -> int:
        """Say how it went in all; return what to end the process with."""
        sys.stdout.write("all is well\n" if not self._failed else f"{self._failed} checks failed\n")
        return 1 if self._failed else 0
