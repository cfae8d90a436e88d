"""HTTP for operators: the page, its API, keys, and the OpenAPI document."""
