"""A job to start from, as `nitro train` completes what a user says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingJob:
    """The length of training on an environment, and its rounds."""

    total_steps: int = 1_000_000
    samples_per_round: int = 2048
    """The setting that the preset `standard` is tuned for."""
    num_actors: int = 8
    hyperparameters: Mapping[str, JsonValue] = field(default_factory=dict)
    """Hyper-parameters of PPO or a search that replace the preset's."""
    reason: str = ""
    """Their source, as shown by `nitro presets ENV`."""
