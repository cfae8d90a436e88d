"""Four gateways, six providers and one Redis over real sockets, with faults: ``make bench WHAT=fleet``."""
