"""The options for fields of a job that the help of `nitro train` lists.

Every other field is an option too, by its own name: see `nitro.cli.console`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class FieldOption:
    """An option that sets a field, in full or in a short form."""

    panel: str
    group: str
    """Prefix of the field's path, with a dot; empty for a job's own fields."""
    name: str
    """Of the field."""
    kind: Any
    help: str
    familiar: str | None = None
    """The name in other libraries."""
    option: str | None = None
    """The option's spelling, if not the field's name."""
    metavar: str | None = None

    @property
    def path(self) -> str:
        """The field's dotted path."""
        return self.group + self.name

    @property
    def spelling(self) -> str:
        """The option as typed."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def parameter(self) -> inspect.Parameter:
        """The command's argument, which typer reads; it has the field's name."""
        option = typer.Option(
            self.spelling,
            help=self.help if self.familiar is None else f"{self.help} Or {self.familiar}.",
            metavar=self.metavar,
            rich_help_panel=self.panel,
            show_default=False,
        )
        kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[self.kind | None, option]
        return inspect.Parameter(self.name, kind, default=None, annotation=annotation)


_job = partial(FieldOption, "What to train", "")
_stop = partial(FieldOption, "What to train", "stop.")
_evaluation = partial(FieldOption, "What to train", "evaluation.")
_learning = partial(FieldOption, "How to learn", "hyperparameters.")
_SWITCH = "--observation-normalisation/--no-observation-normalisation"
FIELD_OPTIONS = (
    _job(
        "algorithm",
        str,
        "Learning algorithm; rounds overlap for all but ppo, ars and es. sac and crossq: "
        "continuous actions.",
        metavar="ppo|impact|impala|sac|crossq|ars|es",
    ),
    _job(
        "preset",
        str,
        "Hyper-parameters; default: standard. `paper` is the paper's complete setting.",
        metavar="paper|standard",
    ),
    _stop("max_rounds", int, "Policy updates.", option="--rounds"),
    _job("seed", int, "Equal seeds train equal policies."),
    _job(
        "actors",
        str,
        "Range of actors in a round. Without --scaling it selects the policy `nitro`.",
        metavar="MIN:MAX",
    ),
    _job(
        "scaling",
        str,
        "Rule for the number of actors; `nitro policies` lists them.",
        metavar="POLICY[:ARG]",
    ),
    _job(
        "learner",
        str,
        "Kind of learner. `functions`: Lambda functions compute the gradients.",
        metavar="auto|gpu|cpu|functions",
    ),
    _stop(
        "budget_usd",
        float,
        "Hard cap on the projected AWS cost; default: 5, or none on this machine.",
    ),
    _stop("max_wall_s", float, "Stop after this many seconds."),
    _stop("target_return", float, "Stop when an evaluation reaches this mean return."),
    _job("steps_per_actor", int, "Environment steps per actor and round.", "--n-steps"),
    _evaluation("every_rounds", int, "Rounds between evaluations; 0: none.", option="--eval-every"),
    _evaluation("episodes", int, "Episodes per evaluation.", option="--eval-episodes"),
    _job("name", str, "Name of the job."),
    _job("tags", list[str], "Tag of the job; repeatable.", option="--tag"),
    _learning("learning_rate", float, "Adam's step size in the first round.", "--lr"),
    _learning("discount", float, "Discount factor of rewards.", "--gamma"),
    _learning("gae_lambda", float, "Lambda of generalised advantage estimation."),
    _learning("clip", float, "Clip range of the probability ratio around 1.", "--clip-range"),
    _learning("entropy_coefficient", float, "Weight of the entropy bonus.", "--ent-coef"),
    _learning("num_epochs", int, "Passes over the samples of a round.", "--n-epochs"),
    _learning("minibatch_size", int, "Samples per gradient step.", "--batch-size"),
    _learning(
        "hidden_sizes",
        str,
        "Widths of the layers of the policy and value networks.",
        "--net-arch",
        metavar="N,N,...",
    ),
    _learning(
        "observation_normalisation",
        bool,
        "Whether observations are normalised by running mean and deviation.",
        option=_SWITCH,
    ),
    FieldOption(
        "How to learn",
        "",
        "samples_per_round",
        int,
        "Environment steps per round, shared by all actors.",
    ),
)

PATHS = {option.spelling: option.path for option in FIELD_OPTIONS if option.kind != list[str]}
"""Paths of the fields by these options, for commands that do not list them."""
FAMILIAR_OPTIONS = {"--total-timesteps": "--total-steps"} | {
    option.familiar: option.spelling for option in FIELD_OPTIONS if option.familiar
}
"""Ours by the names of other libraries. They are no names of the options themselves: a column of
help would be too narrow for both."""


def with_field_options(function: F) -> F:
    """Add all of them to a command, after its first two arguments, in place of its `**fields`."""
    env, steps, *others, _ = inspect.signature(function).parameters.values()
    mine = (option.parameter for option in FIELD_OPTIONS)
    function.__signature__ = inspect.Signature([env, steps, *mine, *others])  # type: ignore[attr-defined]
    return function
