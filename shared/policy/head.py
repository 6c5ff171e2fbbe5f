"""The last outputs of a policy: the distribution of an action. Nothing here needs NumPy."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeVar, get_args

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
)
from shared.hyperparameters.common import Hyperparameters
from shared.policy.registry import HEADS

MAX_CHOICES = 256
"""Most choices that an action may consist of."""

Sampling = Literal["policy", "uniform"]
LogStd = Literal["state_dependent", "free", "none"]
KINDS: dict[str, tuple[str, LogStd]] = {
    "gaussian/state_dependent": ("gaussian", "state_dependent"),
    "gaussian/free": ("gaussian", "free"),
    "squashed_gaussian/state_dependent": ("squashed_gaussian", "state_dependent"),
    "categorical/none": ("categorical", "none"),
    "multi_categorical/none": ("multi_categorical", "none"),
}
"""Distribution and form of its deviations for each kind, in the terms of a policy's metadata."""
_CHOICES = re.compile(rf"[1-9][0-9]{{0,5}}(,[1-9][0-9]{{0,5}}){{0,{MAX_CHOICES - 1}}}")

T = TypeVar("T", bound=str)


class PolicyError(ValueError):
    """Arrays and metadata that do not form a policy; the message names the invalid entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The form in which a network's outputs describe an action's distribution.

    `gaussian`: means, then log-standard deviations, unless these are a free vector.
    `squashed_gaussian`: means, then raw deviations, as `shared.policy.squashed_gaussian` reads
    them. `categorical`: the logits of one choice. `multi_categorical`: the logits of several
    choices, concatenated.
    """

    distribution: str
    """A name in `KINDS` or `HEADS`."""
    log_std: LogStd = "none"
    size: int = 0
    """Size of a continuous action, A."""
    num_choices: tuple[int, ...] = ()
    """Number of values of each choice."""
    masked: bool = False
    """Whether an observation ends with a mask of allowed choices."""
    sampling: Sampling = "policy"
    """With `uniform`, squashed actions are drawn from [-1, 1] regardless of the network."""

    @classmethod
    def of(cls, action: ActionSpec, rule: Hyperparameters) -> Self:
        """Return the head for an environment's actions."""
        if isinstance(action, ContinuousActionSpec):
            size = len(action.low)
            log_std: LogStd = "state_dependent"
            if rule.distribution == "gaussian":
                log_std = getattr(rule, "log_std", log_std)
            return cls(distribution=rule.distribution, log_std=log_std, size=size)
        if isinstance(action, DiscreteActionSpec):
            return cls(distribution="categorical", num_choices=(action.n,))
        return cls(distribution="multi_categorical", num_choices=action.num_choices)

    @classmethod
    def read(cls, metadata: Mapping[str, str], num_outputs: int) -> Self:
        """Return the head of a published policy.

        Raises:
            PolicyError: The metadata describes no head with this number of outputs.
        """
        kind = f"{metadata.get('distribution')}/{metadata.get('log_std')}"
        own: dict[str, tuple[str, LogStd]] = {
            f"{name}/state_dependent": (name, "state_dependent") for name in HEADS
        }
        kinds = KINDS | own
        if kind not in kinds:
            raise PolicyError(f"distribution/log_std is {kind!r:.80}, expected one of {[*kinds]}")
        distribution, log_std = kinds[kind]
        if log_std != "none":
            if log_std == "state_dependent" and num_outputs % 2:
                raise PolicyError(f"{num_outputs} outputs cannot be split into mean and log_std")
            size = num_outputs if log_std == "free" else num_outputs // 2
            said = {"sampling": "policy", **metadata}
            sampling: Sampling = "policy"
            if distribution == "squashed_gaussian":
                sampling = expect(said, "sampling", get_args(Sampling))
            return cls(distribution=distribution, log_std=log_std, size=size, sampling=sampling)
        text = metadata.get("num_choices", "") if distribution != "categorical" else ""
        choices = tuple(int(part) for part in text.split(",")) if _CHOICES.fullmatch(text) else ()
        if distribution == "categorical":
            choices = (num_outputs,)
        if not choices or sum(choices) != num_outputs:
            raise PolicyError(
                f"num_choices is {text!r:.80}, expected whole numbers from 1 with commas between "
                f"them that add up to the {num_outputs} outputs"
            )
        masked = expect({"mask": "no", **metadata}, "mask", ("no", "yes")) == "yes"
        return cls(distribution=distribution, num_choices=choices, masked=masked)

    @property
    def num_outputs(self) -> int:
        """Number of network outputs."""
        return sum(self.num_choices) or self.size * (2 if self.log_std == "state_dependent" else 1)

    def metadata(self) -> dict[str, str]:
        """Return the head's metadata in a published policy."""
        said: dict[str, str] = {"distribution": self.distribution, "log_std": self.log_std}
        if self.sampling != "policy":
            said["sampling"] = self.sampling
        if self.distribution == "multi_categorical":
            said["num_choices"] = ",".join(map(str, self.num_choices))
        if self.masked:
            said["mask"] = "yes"
        return said


def expect(metadata: Mapping[str, str], field: str, allowed: tuple[T, ...]) -> T:
    """Return a metadata field, which must have one of the allowed values."""
    value = metadata.get(field)
    for each in allowed:
        if each == value:
            return each
    wanted = repr(allowed[0]) if len(allowed) == 1 else f"one of {allowed}"
    raise PolicyError(f"{field} is {value!r:.80}, expected {wanted}")
