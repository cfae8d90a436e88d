"""The command line: one file per command. A command imports what it needs when it runs, so ``--help`` is fast."""
