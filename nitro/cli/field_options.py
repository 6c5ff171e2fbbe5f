"""Options of `nitro train` for the fields that are changed most, by our names and familiar ones.

Every other field is set by `--set`.
"""

from functools import partial
from typing import Annotated

import typer
from pydantic import JsonValue

from nitro.errors import CommandError

_job_option = partial(typer.Option, rich_help_panel="What to train")
_option = partial(typer.Option, rich_help_panel="How to learn", show_default=False)

LearningRate = Annotated[
    float | None, _option("--learning-rate", "--lr", help="Adam's step size in the first round.")
]
Discount = Annotated[
    float | None, _option("--discount", "--gamma", help="Discount factor of rewards.")
]
GaeLambda = Annotated[
    float | None, _option("--gae-lambda", help="Lambda of generalised advantage estimation.")
]
Clip = Annotated[
    float | None,
    _option("--clip", "--clip-range", help="Bound of the probability ratio around 1."),
]
EntropyCoefficient = Annotated[
    float | None,
    _option("--entropy-coefficient", "--ent-coef", help="Weight of the entropy bonus."),
]
NumEpochs = Annotated[
    int | None,
    _option("--num-epochs", "--n-epochs", help="Passes over the samples of a round."),
]
MinibatchSize = Annotated[
    int | None, _option("--minibatch-size", "--batch-size", help="Samples per gradient step.")
]
HiddenSizes = Annotated[
    str | None,
    _option(
        "--hidden-sizes",
        "--net-arch",
        metavar="N,N,...",
        help="Widths of the layers of policy and value network.",
    ),
]
SamplesPerRound = Annotated[
    int | None, _option("--samples-per-round", help="Environment steps per round, of all actors.")
]
ObservationNormalisation = Annotated[
    bool | None,
    _option(
        "--observation-normalisation/--no-observation-normalisation",
        help="Whether observations are normalised by their running mean and deviation.",
    ),
]
StepsPerActor = Annotated[
    int | None,
    _job_option("--steps-per-actor", "--n-steps", help="Environment steps per actor and round."),
]
EvalEvery = Annotated[int | None, _job_option(help="Rounds between evaluations; 0: none.")]
EvalEpisodes = Annotated[int | None, _job_option(help="Episodes per evaluation.")]


def parse_sizes(text: str) -> list[JsonValue]:
    """Read the widths of layers.

    >>> parse_sizes("64,64")
    [64, 64]

    Raises:
        CommandError: They are no whole numbers.
    """
    try:
        return [int(size) for size in text.strip("[]() ").split(",") if size.strip()]
    except ValueError:
        raise CommandError(f"--hidden-sizes: must look like 64,64, got {text!r}") from None
