"""An environment by name, as jobs and tasks have it."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from shared.contracts.env_variables import EnvVariables
from shared.contracts.message import Identifier, Message, plain

EnvKwarg = Annotated[bool | int | float | str, BeforeValidator(plain)]
ENV_ID_FORM = r"^[A-Za-z0-9][A-Za-z0-9_./-]*$"
_PLAIN_TEXT = re.compile(r"[^/\\:\x00-\x1f\x7f\ud800-\udfff]{0,256}")


def _require_plain_texts(kwargs: dict[str, EnvKwarg]) -> dict[str, EnvKwarg]:
    # Some constructors open a file, or import a module, by name.
    for name, value in kwargs.items():
        if isinstance(value, str) and not _PLAIN_TEXT.fullmatch(value):
            raise ValueError(
                f"{name} ({value!r:.80}) must be plain: at most 256 printable characters without / "
                "\\ or :, so not a path, a URL or an import path"
            )
    return kwargs


_PlainTexts = AfterValidator(_require_plain_texts)


class WrapperRef(Message):
    """A Gymnasium wrapper by registered name; never an import path."""

    name: Identifier
    """Registered name, such as `TimeAwareObservation`."""
    kwargs: Annotated[dict[Identifier, EnvKwarg], Field(max_length=16), _PlainTexts] = {}
    """Keyword arguments of the wrapper. Texts are plain names, not paths."""


class EnvironmentRef(Message):
    """A Gymnasium environment by registered name. Import paths (`module:Name`) are refused."""

    env_id: Annotated[str, Field(min_length=1, max_length=128, pattern=ENV_ID_FORM)] = "Hopper-v5"
    """Registered id, such as `Hopper-v5` or `CartPole-v1`."""
    env_kwargs: Annotated[dict[Identifier, EnvKwarg], Field(max_length=32), _PlainTexts] = {}
    """Keyword arguments of the environment's constructor. Texts are plain names, not paths."""
    wrappers: Annotated[tuple[WrapperRef, ...], Field(max_length=8)] = ()
    """Wrappers around the environment, innermost first."""
    env_variables: EnvVariables = {}
    """Variables of the process that the simulator reads, set wherever the environment runs, before
    it is built. No secrets: whoever may read the job can read them."""
