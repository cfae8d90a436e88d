"""Words and records that every room shares."""
