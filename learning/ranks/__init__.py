"""Steps that several processes, the ranks, take together: GPUs that share each minibatch."""
