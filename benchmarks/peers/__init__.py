"""Other people's software, and how it is asked to measure."""
