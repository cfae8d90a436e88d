"""Replays calls under other settings, from the ledger's own attempts. Pure: it takes rows and returns figures."""
