"""Which descriptions of environments are kept, and for how long."""

from collections.abc import Iterator

import pytest

from services.scaler.jobs.catalogue import EnvironmentCatalogue
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.settings import Settings
from shared.contracts.environment_ref import EnvironmentRef
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES, LambdaEndpoint, Reply
from tests.services.scaler.services_without_network import Inline


@pytest.fixture
def function(lambdas: LambdaEndpoint) -> Iterator[LambdaFunction]:
    made = LambdaFunction(Settings(auth="disabled", lambda_endpoint_url=lambdas.url), Inline())
    yield made
    made.close()


async def test_an_environment_is_asked_about_anew_once_its_description_is_old(
    function: LambdaFunction, lambdas: LambdaEndpoint
) -> None:
    ref = EnvironmentRef(env_id="Hopper-v5")
    catalogue = EnvironmentCatalogue(function, ttl_s=1e-9)
    assert await catalogue.describe(ref) == HOPPER
    lambdas.behave = lambda task, nth: Reply(body=IMAGES.model_dump(mode="json"))
    assert catalogue.known(ref) is None
    assert await catalogue.describe(ref) == IMAGES


async def test_256_environments_are_known_and_the_oldest_makes_room_for_another(
    function: LambdaFunction, lambdas: LambdaEndpoint
) -> None:
    catalogue = EnvironmentCatalogue(function, ttl_s=300.0)
    refs = [EnvironmentRef(env_id="Hopper-v5", env_kwargs={"variant": i}) for i in range(257)]
    for ref in refs[:256]:
        await catalogue.describe(ref)
    assert all(catalogue.known(ref) for ref in refs[:256])
    await catalogue.describe(refs[256])
    assert [ref for ref in refs if not catalogue.known(ref)] == refs[:1]
    assert await catalogue.describe(refs[1]) == HOPPER
    assert len(lambdas.events) == 257
