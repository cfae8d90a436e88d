"""Whether the intervals and verdicts of ``holeshot bench`` hold what they promise, where the truth is known."""
