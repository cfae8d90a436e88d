"""Where time and memory go: flame graphs, counted functions, the memory of an open stream."""
