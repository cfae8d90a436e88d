"""The OpenAPI document, made from handlers and structs."""
