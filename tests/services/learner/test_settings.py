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


def test_artifacts_are_in_the_runs_folder_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NITRO_RUNS_DIR", "r")
    assert LearnerSettings().artifact_location == "r"
    monkeypatch.setenv("NITRO_ARTIFACTS", "s3://bucket/runs")
    assert LearnerSettings().artifact_location == "s3://bucket/runs"


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_is_the_sdk_s(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "eu-west-1")
    assert LearnerSettings().aws_region == "eu-west-1"


def test_a_refusal_does_not_quote_what_may_be_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_CACHE_URL", "redis://:hush@cache:6379/0")
    monkeypatch.setenv("NITRO_CACHE_AUTH", "iam")
    with pytest.raises(ValidationError, match="NITRO_CACHE_USER") as refusal:
        LearnerSettings()
    assert "hush" not in str(refusal.value)


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
        ("NITRO_LEARNER_RANKS", "0"),
        ("NITRO_RANK_TIMEOUT_S", "0"),
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
    with pytest.raises(ValueError, match=f"NITRO_TOKEN_FILE.*{missing}"):
        LearnerSettings(token_file=missing).bearer_token()
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(ValueError, match="is empty"):
        LearnerSettings(token_file=empty).bearer_token()
