"""Notices that a deployment got slower, or fails more often, than it and its peers let expect (docs/detector.md).

Pure: counts of windows go in, slowdowns come out. Who reads and stores them is ``gateway.ledger.books``.
"""
