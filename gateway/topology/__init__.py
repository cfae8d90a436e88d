"""The topology of Redis: one node, the master that Sentinels name, or the masters of a Cluster."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
