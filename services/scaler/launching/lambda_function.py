"""A Lambda function behind AWS's API: one call is one execution, with its billed duration.

Nothing is retried here: hidden retries would run actors again, at a cost.
`services.scaler.launching.invoker` decides about them.
"""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import boto3
import botocore.session
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader, create_loader

from services.scaler.launching.connections import UnreachableError
from services.scaler.launching.execution import (
    MAX_REASON,
    Execution,
    ExecutionKind,
    answered,
    never_started,
    refused,
    short,
)
from services.scaler.launching.invoke_request import InvokeRequests
from services.scaler.off_loop import OffLoop
from services.scaler.settings import Settings
from shared.service.tokens import read_token

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_lambda.type_defs import GetAccountSettingsResponseTypeDef

_NOT_LAMBDA = (AttributeError, KeyError, TypeError, ValueError)
"""Exceptions of the SDK's parser for an answer that is not Lambda's."""
_CONTROL_TIMEOUT_S = 5.0
"""Time-out of control-plane calls, which are shorter than invocations."""
_OLDEST_HEADER = "x-nitro-oldest-invocation-s"
"""The emulator's addition to the account's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEnvironments:
    """Provisioned concurrency as reported by Lambda."""

    asked: int
    ready: int
    failed: str | None = None
    """Why Lambda gave up on the rest; it does not retry by itself."""


class LambdaApiError(RuntimeError):
    """The Lambda API cannot be reached or refuses an administrative call."""


class LambdaFunction:
    """One alias of a function, behind AWS's API or an emulator of it."""

    def __init__(
        self,
        settings: Settings,
        threads: OffLoop,
        *,
        name: str | None = None,
        may_invoke: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take a function by its name; None takes the actor.

        The control plane is called by boto3, on the threads. Nothing is invoked when it may not be.
        """
        self._threads = threads
        self._name = name or settings.lambda_function
        self._qualifier = settings.lambda_qualifier
        self._reserved = settings.lambda_reserved_concurrency
        self._emulated = settings.lambda_endpoint_url is not None
        self._where = settings.lambda_endpoint_url or f"AWS Lambda in {settings.lambda_region}"
        session = botocore.session.get_session()
        data_path = session.get_config_variable("data_path")
        session.register_component("data_loader", _descriptions(data_path))
        self._client = _client(session, settings)
        self._requests = InvokeRequests(
            self._client, session, settings, threads, name=self._name, may_send=may_invoke
        )

    @property
    def problems(self) -> dict[str, str]:
        """Warnings about settings that other calls use but invocations ignore."""
        if self._emulated or not self._requests.unused_proxy:
            return {}
        why = (
            f"the environment names a proxy for {self._where}, but Invoke ignores it: give the "
            "scaler direct access, for example with a VPC endpoint, and add it to NO_PROXY"
        )
        return {"invoke_proxy": why}

    async def invoke(self, payload: bytes) -> Execution:
        """Run the function once and wait for its end."""
        try:
            request = await self._requests.signed(payload)
        except (BotoCoreError, ClientError, OSError) as error:
            # Renewing credentials is a separate call that can fail like any other.
            return never_started("failed", error)
        sent_at = time.perf_counter()
        return replace(await self._sent(request), sent_at=sent_at)

    async def _sent(self, request: AWSPreparedRequest) -> Execution:
        try:
            answer = await self._requests.send(request)
        except ClientError as error:
            return refused(error)
        except UnreachableError as error:
            return never_started("unreachable", error)
        except OSError as error:
            # The connection broke or timed out while the function may have been running.
            kind: ExecutionKind = "failed" if isinstance(error, TimeoutError) else "broken"
            return Execution(kind=kind, reason=short(error))
        return answered(answer)

    async def concurrency_limit(self) -> int:
        """Return the limit of concurrent executions; more would be throttled.

        Raises:
            LambdaApiError: The API cannot be reached or refuses.
        """
        if self._reserved is None:
            return await self.unreserved_concurrency()
        limit = (await self._threads.run(self._account_settings))["AccountLimit"]
        return min(self._reserved, limit["ConcurrentExecutions"])

    async def unreserved_concurrency(self) -> int:
        """Return the unreserved part of the limit.

        Raises:
            LambdaApiError: The API cannot be reached or refuses.
        """
        limit = (await self._threads.run(self._account_settings))["AccountLimit"]
        return limit.get("UnreservedConcurrentExecutions", limit["ConcurrentExecutions"])

    async def oldest_invocation_s(self) -> float | None:
        """Return the age of the oldest invocation in flight, 0 without any.

        Returns:
            None from AWS, which does not report it.

        Raises:
            LambdaApiError: The API cannot be reached or refuses.
        """
        if not self._emulated:
            return None
        settings = await self._threads.run(self._account_settings)
        told = settings["ResponseMetadata"]["HTTPHeaders"].get(_OLDEST_HEADER)
        with self._api_errors():
            return None if told is None else float(told)

    async def provision(self, num_environments: int) -> None:
        """Set the alias's provisioned concurrency; 0 removes it.

        Raises:
            LambdaApiError: The API cannot be reached or refuses.
        """
        await self._threads.run(self._provision, num_environments)

    async def provisioned(self) -> WarmEnvironments:
        """Return the alias's provisioned concurrency.

        Raises:
            LambdaApiError: The API cannot be reached or refuses.
        """
        return await self._threads.run(self._provisioned)

    def close(self) -> None:
        """Close idle connections."""
        self._requests.close()
        self._client.close()

    def _provision(self, num_environments: int) -> None:
        with self._api_errors():
            if num_environments:
                self._client.put_provisioned_concurrency_config(
                    FunctionName=self._name,
                    Qualifier=self._qualifier,
                    ProvisionedConcurrentExecutions=num_environments,
                )
            else:
                self._client.delete_provisioned_concurrency_config(
                    FunctionName=self._name, Qualifier=self._qualifier
                )

    def _provisioned(self) -> WarmEnvironments:
        with self._api_errors():
            try:
                config = self._client.get_provisioned_concurrency_config(
                    FunctionName=self._name, Qualifier=self._qualifier
                )
            except self._client.exceptions.ProvisionedConcurrencyConfigNotFoundException:
                return WarmEnvironments(asked=0, ready=0)
            asked = config["RequestedProvisionedConcurrentExecutions"]
        failed = config.get("StatusReason", "no reason given")[:MAX_REASON]
        return WarmEnvironments(
            asked=asked,
            ready=config.get("AvailableProvisionedConcurrentExecutions", 0),
            failed=failed if config.get("Status") == "FAILED" else None,
        )

    def _account_settings(self) -> "GetAccountSettingsResponseTypeDef":
        with self._api_errors():
            settings = self._client.get_account_settings()
            settings["AccountLimit"]["ConcurrentExecutions"]  # without it the answer is none
        return settings

    @contextmanager
    def _api_errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise LambdaApiError(f"{self._where}: {short(error)}") from error
        except _NOT_LAMBDA as error:
            why = f"{self._where} does not answer as Lambda does: {short(error)}"
            raise LambdaApiError(why) from error


@functools.cache
def _descriptions(data_path: str | None) -> Loader:
    """Return what reads AWS's descriptions of its services: 0.2 s for whoever reads them first."""
    return create_loader(data_path)


def _client(session: botocore.session.Session, settings: Settings) -> "LambdaClient":
    """Return what calls the control plane: invocations have connections of their own."""
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=settings.lambda_connect_timeout_s,
        read_timeout=_CONTROL_TIMEOUT_S,
        tcp_keepalive=True,
        user_agent="nitro-scaler",  # so that the account's logs name the caller
    )
    if settings.lambda_endpoint_url is not None:
        # An emulator identifies callers by the access key id, and does not check signatures.
        token = read_token(
            settings.lambda_token, settings.lambda_token_file, name="NITRO_LAMBDA_TOKEN"
        )
        session.set_credentials(token or "emulator", "emulator")
    return boto3.Session(botocore_session=session, region_name=settings.lambda_region).client(
        "lambda", endpoint_url=settings.lambda_endpoint_url, config=config
    )
