"""What becomes of a gateway that is sent more calls than it can serve."""
