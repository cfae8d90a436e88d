"""What operators see of the running gateway: its log and its metrics."""
