"""Options of `nitro train` that are fields of a job, by our names and familiar ones.

Every other field is set by `--set`.
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
    """An option whose value is that of a field, or a short form of it."""

    panel: str
    group: str
    """Of fields, with a dot behind it; empty for a job's own."""
    name: str
    """Of the field."""
    kind: Any
    help: str
    familiar: str | None = None
    """As other libraries call it."""
    option: str | None = None
    """As it is typed, if not by the field's name."""
    metavar: str | None = None

    @property
    def path(self) -> str:
        """Of the field, dotted."""
        return self.group + self.name

    @property
    def parameter(self) -> inspect.Parameter:
        """The command's argument, which typer reads; it has the field's name."""
        names = (self.option or f"--{self.name.replace('_', '-')}", self.familiar)
        option = typer.Option(
            *(name for name in names if name is not None),
            help=self.help,
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
        "Learning algorithm; rounds of all but ppo overlap. sac and crossq are for continuous "
        "actions.",
        metavar="ppo|impact|impala|sac|crossq",
    ),
    _job(
        "preset",
        str,
        "Hyper-parameters; default: standard. `paper` is the paper's whole setting.",
        metavar="paper|standard",
    ),
    _stop("max_rounds", int, "Policy updates.", option="--rounds"),
    _job("seed", int, "Equal seeds train equal policies."),
    _job(
        "actors",
        str,
        "Actors one round may launch. Without --scaling the policy is then `nitro`.",
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
        "What learns. `functions`: Lambda functions compute the gradients.",
        metavar="auto|gpu|cpu|functions",
    ),
    _stop(
        "budget_usd",
        float,
        "Hard cap on the cost, as projected to AWS; default: 5, or none on this machine.",
    ),
    _stop("max_wall_s", float, "Stop after this many seconds."),
    _stop("target_return", float, "Stop when an evaluation has this mean return."),
    _job("steps_per_actor", int, "Environment steps per actor and round.", "--n-steps"),
    _evaluation("every_rounds", int, "Rounds between evaluations; 0: none.", option="--eval-every"),
    _evaluation("episodes", int, "Episodes per evaluation.", option="--eval-episodes"),
    _job("name", str, "What to call the job."),
    _job("tags", list[str], "A word to find the job by; repeatable.", option="--tag"),
    _learning("learning_rate", float, "Adam's step size in the first round.", "--lr"),
    _learning("discount", float, "Discount factor of rewards.", "--gamma"),
    _learning("gae_lambda", float, "Lambda of generalised advantage estimation."),
    _learning("clip", float, "Bound of the probability ratio around 1.", "--clip-range"),
    _learning("entropy_coefficient", float, "Weight of the entropy bonus.", "--ent-coef"),
    _learning("num_epochs", int, "Passes over the samples of a round.", "--n-epochs"),
    _learning("minibatch_size", int, "Samples per gradient step.", "--batch-size"),
    _learning(
        "hidden_sizes",
        str,
        "Widths of the layers of policy and value network.",
        "--net-arch",
        metavar="N,N,...",
    ),
    _learning(
        "observation_normalisation",
        bool,
        "Whether observations are normalised by their running mean and deviation.",
        option=_SWITCH,
    ),
    FieldOption(
        "How to learn",
        "",
        "samples_per_round",
        int,
        "Environment steps per round, of all actors.",
    ),
)


def with_field_options(function: F) -> F:
    """Give a command all of them, behind its first two arguments, in place of its `**fields`."""
    env, steps, *others, _ = inspect.signature(function).parameters.values()
    mine = (option.parameter for option in FIELD_OPTIONS)
    function.__signature__ = inspect.Signature([env, steps, *mine, *others])  # type: ignore[attr-defined]
    return function
