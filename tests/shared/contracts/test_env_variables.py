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
        ("SIM_MODEL", "/etc/passwd", "must be no path, no URL"),
        ("SIM_SERVER", "http://sim", "must be no path, no URL"),
        ("SIM_CLASS", "module:Class", "must be no path, no URL"),
        ("LD_PRELOAD", "lib.so", "belongs to the system"),
        ("JAVA_TOOL_OPTIONS", "-javaagent", "belongs to the system"),
        ("PYTHONPATH", "lib", "belongs to the system"),
        ("nitro_token_file", "a", "belongs to the system"),
        ("PATH", "bin", "belongs to the system"),
        ("A=B", "c", "should match pattern"),
        ("SIM", "a\nb", "should match pattern"),
        ("SIM", "x" * 201, "at most 200"),
    ],
)
def test_others_are_refused_with_the_reason(name: str, value: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        JobSpec(env_variables={name: value})


def test_they_are_few() -> None:
    with pytest.raises(ValidationError, match="at most 16"):
        JobSpec(env_variables={f"SIM_{i}": "1" for i in range(17)})
