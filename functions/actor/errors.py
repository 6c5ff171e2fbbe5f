"""What may go wrong in a rollout, as the caller sees it."""

DIVERGED = "action is not finite at step {step} (policy diverged)"


class RolloutError(RuntimeError):
    """The environment or the policy failed; the message names the environment and the step."""
