"""Detects that a deployment got slower, or fails more often, than expected from its past and its peers.

docs/monitoring.md#when-a-provider-gets-slower has the method. Pure: counts of windows go in, slowdowns come out;
``gateway.ledger.books`` reads and stores them.
"""
