"""HTTP for clients: from a request to a race and back."""
