"""Request bodies: read after admission, with limits on size and time, and processed in slices."""
