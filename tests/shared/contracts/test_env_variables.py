"""Variables that a job may bring, and those that it may not."""

import pytest
from pydantic import ValidationError

from shared.contracts.job_spec import JobSpec


def test_a_job_brings_variables_to_whatever_builds_its_environment() -> None:
    spec = JobSpec(env_variables={"SIM_MODE": "hard", "sim_level": "3 (of 5)"})
    assert spec.environment_ref.env_variables == spec.env_variables


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SIM_TOKEN", "x", "looks like a secret"),
        ("SIM_SERVER", "http://me:pw@sim", "looks like a secret"),
        ("SIM_MODEL", "/etc/passwd", "must not be a path, a URL"),
        ("SIM_SERVER", "http://sim", "must not be a path, a URL"),
        ("SIM_CLASS", "module:Class", "must not be a path, a URL"),
        ("LD_PRELOAD", "lib.so", "belongs to the system"),
        ("JAVA_TOOL_OPTIONS", "-javaagent", "belongs to the system"),
        ("PYTHONPATH", "lib", "belongs to the system"),
        ("nitro_token_file", "a", "belongs to the system"),
        ("PATH", "bin", "belongs to the system"),
        ("NODE_OPTIONS", "--require a", "belongs to the system"),
        ("PERL5OPT", "-Ma", "belongs to the system"),
        ("RUBYOPT", "-ra", "belongs to the system"),
        ("GCONV_PATH", "a", "belongs to the system"),
        ("GIT_SSH_COMMAND", "a", "belongs to the system"),
        ("MUJOCO_PLUGIN_DIR", "a", "belongs to the system"),
        ("SSL_CERT_FILE", "a.pem", "belongs to the system"),
        ("https_proxy", "http://a:80", "belongs to the system"),
        ("LAMBDA_TASK_ROOT", "a", "belongs to the system"),
        ("_HANDLER", "a.b", "belongs to the system"),
        ("A=B", "c", "should match pattern"),
        ("SIM", "a\nb", "should match pattern"),
        ("SIM", "x" * 201, "at most 200"),
    ],
)
def test_others_are_refused_with_the_reason(name: str, value: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        JobSpec(env_variables={name: value})


@pytest.mark.parametrize("name", ["home", "path", "SIM_PROXY", "RUBY_LEVEL"])
def test_names_that_only_resemble_those_are_the_jobs_own(name: str) -> None:
    assert JobSpec(env_variables={name: "1"}).env_variables == {name: "1"}


def test_a_stored_job_is_read_whatever_is_refused_by_now() -> None:
    stored = JobSpec().model_copy(update={"env_variables": {"NODE_OPTIONS": "--a"}})
    assert JobSpec.read(stored.model_dump_json()).env_variables == {"NODE_OPTIONS": "--a"}


def test_they_are_few() -> None:
    with pytest.raises(ValidationError, match="at most 16"):
        JobSpec(env_variables={f"SIM_{i}": "1" for i in range(17)})
