"""What passes between a learner and its learner functions through the cache, as bytes."""
