"""What vendors are, as rows of data, and what of a request they may be asked to do without."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
