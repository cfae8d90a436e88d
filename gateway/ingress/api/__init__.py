"""/api: what the page shows, as JSON."""
