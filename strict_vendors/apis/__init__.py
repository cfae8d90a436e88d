"""What several vendors have in common: each API, as it is read, answered and streamed."""
