"""The ledger: every call and every attempt as a row of SQL, shipped through a spool on local disk."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
