"""Recent answers that no provider stores, kept in this process and, sealed, in Redis for other replicas."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
