"""What the benchmarks share: mock upstream, measured servers, load generator, figures and their report."""
