"""What benchmarks and studies leave behind, and how it is shown."""
