"""An HTTP client for races, for HTTP/1.1 and HTTP/2: a lost exchange is dropped at once, at little cost."""
