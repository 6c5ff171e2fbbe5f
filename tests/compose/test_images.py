"""What is in the images, and above all what is not."""

import json

import pytest

from tests.compose import docker, wheelhouse
from tests.compose.images import DOCKERFILES, Images, inspect

pytestmark = pytest.mark.compose

ENTRY_MODULES = {
    "actor": "functions.actor.handler",
    "scaler": "services.scaler.app",
    "emulator": "services.emulator.app",
    "learner": "services.learner.app",
}
ABSENT = {
    "actor": ("torch", "boto3", "fastapi", "matplotlib", "services", "nitro", "pip"),
    "scaler": ("torch", "gymnasium", "mujoco", "numpy", "services.learner", "functions", "pip"),
    "emulator": ("torch", "numpy", "redis", "shared.cache", "services.scaler", "functions", "pip"),
    "learner": ("services.scaler", "functions.gradient", "nitro", "pip"),
}
BUDGET_MB = {"actor": 450, "scaler": 250, "emulator": 250}
LEARNER_CPU_MB = 1400


def python(deployable: str, source: str) -> str:
    """Run Python in an image as locked up as it runs in Lambda or in compose, or more."""
    return docker.run(
        *("docker", "run", "--rm", "--read-only", "--network", "none", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--env", "NITRO_CACHE_URL=redis://nowhere:6379/0"),
        *("--entrypoint", "/opt/nitro/bin/python", Images.name(deployable), "-c", source),
    ).strip()


@pytest.mark.parametrize("deployable", BUDGET_MB)
def test_an_image_stays_within_its_budget(images: Images, deployable: str) -> None:
    assert images.size_mb(images.name(deployable)) <= BUDGET_MB[deployable]


def test_the_learner_brings_no_cuda_unless_it_is_asked_for(images: Images) -> None:
    if not list(wheelhouse.packages().glob("torch-*+cpu-*.whl")):
        pytest.skip("where packages come from here, there is no CPU build of torch")
    source = "import torch; print(torch.__version__, torch.version.cuda)"
    assert python("learner", source).endswith("+cpu None")
    assert images.size_mb(images.name("learner")) <= LEARNER_CPU_MB


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_an_entry_point_loads_without_network_and_from_a_read_only_root(
    images: Images, deployable: str
) -> None:
    module = ENTRY_MODULES[deployable]
    source = f"import os, {module} as m; print(os.path.exists(m.__cached__), os.getuid())"
    assert python(deployable, source) == "True 10001"


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_an_image_holds_nothing_it_must_not_import(images: Images, deployable: str) -> None:
    source = f"""
import importlib.util, json
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
print(json.dumps([name for name in {ABSENT[deployable]!r} if there(name)]))
"""
    assert json.loads(python(deployable, source)) == []


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_an_image_has_no_build_tools_and_keeps_no_build_argument(
    images: Images, deployable: str
) -> None:
    source = "import shutil; print([n for n in ('gcc', 'cc', 'make', 'git') if shutil.which(n)])"
    assert python(deployable, source) == "[]"
    history = docker.run("docker", "history", "--no-trunc", Images.name(deployable))
    assert "find-links" not in history


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_an_image_runs_as_nobody_in_particular(images: Images, deployable: str) -> None:
    assert inspect(Images.name(deployable))["Config"]["User"] == "10001:10001"


def test_the_actor_starts_as_lambda_starts_it(images: Images) -> None:
    config = inspect(Images.name("actor"))["Config"]
    assert config["Entrypoint"] == ["/opt/nitro/bin/python", "-m", "awslambdaric"]
    assert config["Cmd"] == ["functions.actor.handler.handler"]
    assert "OPENBLAS_NUM_THREADS=1" in config["Env"]


@pytest.mark.parametrize("deployable", ["scaler", "emulator", "learner"])
def test_what_serves_a_port_says_how_to_check_its_health(images: Images, deployable: str) -> None:
    config = inspect(Images.name(deployable))["Config"]
    assert config["Healthcheck"]["Test"][:2] == ["CMD", "alive.sh"]
