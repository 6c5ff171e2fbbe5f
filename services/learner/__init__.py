"""The learner: collects trajectories, updates the policy, measures its curvature."""
