"""What may go wrong in a rollout, as the caller sees it."""


class RolloutError(RuntimeError):
    """The environment or the policy failed; the message names the environment and the step."""
