"""Words and records shared by all rooms."""
