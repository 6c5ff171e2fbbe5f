"""Messages between a learner and its learner functions, as bytes in the cache."""
