"""Bodies of requests: read after admission, within bounds and clocks, and never more than a slice at a time."""
