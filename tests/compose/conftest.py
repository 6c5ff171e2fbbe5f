"""Built images and a running stack, once for all tests; sizes are shown at the end."""

from collections.abc import Iterator

import pytest

from tests.compose import docker, wheelhouse
from tests.compose.images import DOCKERFILES, Images, build
from tests.compose.stack import Stack

_SIZES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def images(pytestconfig: pytest.Config) -> Images:
    if not docker.succeeds("docker", "info"):
        pytest.fail("Docker does not answer: run `containers/with_docker.sh make compose-test`")
    built = build(wheelhouse.packages())
    base = built.size_mb(built.base)
    pytestconfig.stash[_SIZES] = [
        f"{name}: {whole:.0f} MB, {whole - base:.0f} MB of them above {built.base}"
        for name in DOCKERFILES
        for whole in [built.size_mb(built.name(name))]
    ]
    return built


@pytest.fixture(scope="module")
def stack(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(images, tmp_path_factory.mktemp("stack"))
    try:
        _up(running)
        yield running
    finally:
        running.down()


def _up(stack: Stack) -> None:
    try:
        stack.up(actors=2)
    except AssertionError as error:
        error.add_note(stack.logs())
        raise


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(_SIZES, []):
        terminalreporter.write_line(f"image {line}")
