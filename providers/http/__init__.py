"""An HTTP client for racing, in both versions: a lost exchange is dropped at once and costs next to nothing."""
