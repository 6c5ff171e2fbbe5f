"""Gradient steps shared by several processes, the ranks: GPUs that share each minibatch."""
