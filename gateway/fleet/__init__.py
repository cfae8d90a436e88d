"""The resolved configuration: models, their deployments, and the upstreams that reach them."""
