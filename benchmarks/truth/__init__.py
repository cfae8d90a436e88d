"""What the ledger says, held against a fleet that logs its own draws: ``make bench WHAT=truth``."""
