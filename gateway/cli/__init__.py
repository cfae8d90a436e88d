"""The operator's command line: one file per verb. A verb imports what it needs when it runs: ``--help`` is instant."""
