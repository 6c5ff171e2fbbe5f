"""Records of benchmarks and studies, and their tables."""
