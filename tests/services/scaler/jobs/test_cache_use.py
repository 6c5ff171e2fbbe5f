"""When the cache's network is slow for a job."""

import pytest

from services.scaler.jobs.admission import admitted
from services.scaler.jobs.cache_use import traffic_warnings
from services.scaler.jobs.network_size import network_weights
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.deployment.machines import network_mb_per_s, node_for_traffic
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES


def _warnings(*, images: bool, most: int, node: str | None) -> tuple[str, ...]:
    spec = JobSpec.model_validate(
        {"env_id": "ALE/Pong-v5" if images else "Hopper-v5", "actors": {"min": 1, "max": most}}
    )
    job = Job(job_id="job-1", spec=spec, status="checking", created_at=0)
    return admitted(job, IMAGES if images else HOPPER, node).warnings


def test_a_job_whose_weights_a_small_node_sends_slowly_is_told_which_node_suits() -> None:
    weights_mb = 4e-6 * network_weights(JobSpec(env_id="ALE/Pong-v5"), IMAGES)
    (warning,) = _warnings(images=True, most=16, node="cache.t4g.micro")
    assert f"16 actors fetch {16 * weights_mb:.0f} MB of weights a round" in warning
    assert f"takes {16 * weights_mb / 8:.0f} s at the 8 MB/s" in warning
    suits = warning.partition(": use ")[2].partition(" ")[0]
    assert 16 * weights_mb / network_mb_per_s(suits) <= 5
    assert _warnings(images=True, most=16, node=suits) == ()


def test_half_the_precision_is_half_the_traffic() -> None:
    spec = JobSpec.model_validate({"env_id": "ALE/Pong-v5", "actors": {"min": 1, "max": 64}})
    halved = spec.model_copy(update={"policy_precision": "float16"})
    (whole,) = traffic_warnings(spec, IMAGES, "cache.t4g.micro")
    (half,) = traffic_warnings(halved, IMAGES, "cache.t4g.micro")
    takes_s = [float(text.partition("takes ")[2].partition(" s")[0]) for text in (whole, half)]
    assert takes_s[1] == pytest.approx(takes_s[0] / 2, abs=0.6)


@pytest.mark.parametrize(
    ("images", "most", "node"),
    [(False, 64, "cache.t4g.micro"), (True, 64, None), (True, 1, "cache.r7g.large")],
)
def test_nothing_is_said_where_it_is_fast_or_not_on_aws(
    images: bool, most: int, node: str | None
) -> None:
    assert _warnings(images=images, most=most, node=node) == ()


def test_where_no_node_suffices_the_fastest_one_is_named() -> None:
    assert node_for_traffic(10_000) == "cache.r7g.large"
    assert node_for_traffic(8.0) == "cache.t4g.micro"
    assert node_for_traffic(8.1) == "cache.t4g.small"
