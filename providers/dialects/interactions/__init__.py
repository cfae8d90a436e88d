"""Google's Interactions API."""
