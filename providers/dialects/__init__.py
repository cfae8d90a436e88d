"""The APIs in which answers are asked for, and the translations between them."""
