"""Short calls through a gateway over real sockets: alone, hedged and raced."""
