"""The gateway beside its peers: each installed under ``var/installed``, never a dependency of the project."""
