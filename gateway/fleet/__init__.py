"""What is configured, resolved: models, their deployments, and the upstreams that reach them."""
