"""The topology of Redis: one node, the master that Sentinels name, or the masters of a Cluster."""
