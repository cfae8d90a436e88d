"""Overload control of a process: the event loop's delay, the limit of calls in flight, the queue, and refusals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
