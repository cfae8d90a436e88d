"""The APIs in which clients ask for answers: one file each, all understood as an ``Asked``."""
