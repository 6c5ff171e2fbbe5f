from pathlib import Path

import pytest
from pydantic import ValidationError

from services.learner.settings import LearnerSettings


def test_defaults_need_no_environment() -> None:
    settings = LearnerSettings()
    assert settings.scaler_url == "http://127.0.0.1:8080"
    assert settings.bearer_token() is None


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("NITRO_SCALER_URL", "https://nitro.example/")
    monkeypatch.setenv("NITRO_TOKEN_FILE", str(tmp_path / "token"))
    settings = LearnerSettings()
    assert settings.scaler_url == "https://nitro.example"
    assert settings.bearer_token() == "secret"


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_TOKEN", "hush")
    monkeypatch.setenv("NITRO_CACHE_URL", "redis://:hush@cache:6379/0")
    assert "hush" not in repr(LearnerSettings())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NITRO_SCALER_URL", "scaler:8080"),
        ("NITRO_LEARNER_PORT", "70000"),
        ("NITRO_DEVICE", "tpu"),
        ("NITRO_TORCH_THREADS", "0"),
        ("NITRO_LEARNER_ID", "a/b"),
        ("NITRO_SCALER_PATIENCE_S", "-1"),
    ],
)
def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValidationError, match=variable.removeprefix("NITRO_").lower()):
        LearnerSettings()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    with pytest.raises(ValueError, match=f"NITRO_TOKEN_FILE {missing}"):
        LearnerSettings(token_file=missing).bearer_token()
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(ValueError, match="is empty"):
        LearnerSettings(token_file=empty).bearer_token()
