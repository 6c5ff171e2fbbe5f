"""The actor: one rollout per invocation."""
