"""One request to a provider and its answer: the interface, and the forms in which a request is sent."""
