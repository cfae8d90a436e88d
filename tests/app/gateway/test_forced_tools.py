"""A request that forces a call of a tool gets the call, whatever its model thinks of that."""
