"""The process: start, signals, workers, reloads, end; and what accepts, drains and cuts connections of clients."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
