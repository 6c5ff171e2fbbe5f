"""Which variables others must not see."""

import pytest

from shared.service.secret_names import looks_secret


@pytest.mark.parametrize(
    "name",
    [
        *("SIM_LICENSE_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "client_secret", "SSH_AUTH_SOCK"),
        *("OPENAI_APIKEY", "PGPASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN"),
        *("GITHUB_PAT", "SENTRY_DSN", "AZURE_STORAGE_CONNECTION_STRING", "SIM_PWD", "SIM_LICENSE"),
    ],
)
def test_names_that_look_like_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("SIM_MODE", "PWD", "OLDPWD", "KEYBOARD", "SIM_PASSES", "MUJOCO_GL", "SIM_PATCH"),
        *("TOKENIZERS_PARALLELISM", "SIM_PATH", "SIM_LICENSE_SERVER", "SIM_CONNECTION"),
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    "value",
    [
        *("https://me:1234@sim.example/run", "https://9f2c@errors.example/4", "redis://:pw@cache"),
        *("Server=sim;AccountKey=zz==;Port=1", "https://sim.example/run?level=1&token=9f2c"),
    ],
)
def test_credentials_in_a_value_are_a_secret_under_any_name(value: str) -> None:
    assert looks_secret("SIM_SERVER", value)


@pytest.mark.parametrize(
    "value",
    [
        *("https://sim.example:443/run?user=me@example", "https://sim.example:443?user=me@example"),
        *("ssh://git@sim.example/levels", "level=3;seed=1", "tokens=4"),
    ],
)
def test_addresses_and_settings_without_credentials_are_none(value: str) -> None:
    assert not looks_secret("SIM_SERVER", value)
