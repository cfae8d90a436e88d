"""The page: what a browser is served, read once."""
