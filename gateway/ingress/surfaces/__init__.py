"""The raced APIs: one file each; all their requests are read into an ``Asked``."""
