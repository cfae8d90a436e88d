"""What providers say instead of an answer: what it means, what it teaches, and what may be kept of its words."""
