"""How fast a large ledger answers, while rows arrive, and what a call takes on disk."""
