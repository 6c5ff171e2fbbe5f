"""Which variables others must not see."""

import pytest

from shared.service.secret_names import looks_secret


@pytest.mark.parametrize(
    "name",
    [
        *("SIM_LICENSE_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "client_secret", "SSH_AUTH_SOCK"),
        *("OPENAI_APIKEY", "PGPASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN"),
    ],
)
def test_names_that_look_like_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["SIM_MODE", "PWD", "KEYBOARD", "SIM_PASSES", "MUJOCO_GL", "TOKENIZERS_PARALLELISM"]
)
def test_names_that_do_not(name: str) -> None:
    assert not looks_secret(name)


def test_a_password_in_an_address_is_a_secret_under_any_name() -> None:
    assert looks_secret("SIM_SERVER", "https://me:1234@sim.example/run")
    assert not looks_secret("SIM_SERVER", "https://sim.example:443/run?user=me@example")
