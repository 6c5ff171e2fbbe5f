"""The users' HTTPS endpoint in front of the scaler, throttled and logged.

API Gateway ends TLS and finds the scaler through Cloud Map, so that there is no load balancer to
pay for and nothing of ours listens to the internet. The token is checked by the scaler; with `iam`
API Gateway asks for an IAM signature first.
"""

import json

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs
from aws_cdk import aws_servicediscovery as servicediscovery
from constructs import Construct

from cdk.network import PUBLIC, Network
from cdk.stores import nitro_log_group
from shared.deployment.config import NitroConfig

_ROUTES = (
    ("/", apigateway.HttpMethod.GET),
    ("/docs", apigateway.HttpMethod.GET),
    ("/web/{proxy+}", apigateway.HttpMethod.GET),
    ("/v1/{proxy+}", apigateway.HttpMethod.ANY),
    ("/healthz", apigateway.HttpMethod.GET),
    ("/readyz", apigateway.HttpMethod.GET),
    ("/openapi.json", apigateway.HttpMethod.GET),
)
"""Public routes: the pages, the API and its health; metrics stay inside."""

_LOGGED = {
    "time": "requestTime",
    "id": "requestId",
    "from": "identity.sourceIp",
    "method": "httpMethod",
    "path": "path",
    "status": "status",
    "bytes": "responseLength",
    "ms": "responseLatency",
    "error": "error.message",
}


class ApiEndpoint(Construct):
    """HTTP API, its stage, and the link into the VPC."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        network: Network,
        service: servicediscovery.IService,
    ) -> None:
        super().__init__(scope, id)
        link = apigateway.VpcLink(
            self, "Link", vpc=network.vpc, subnets=PUBLIC, security_groups=[network.api_link]
        )
        api = apigateway.HttpApi(
            self, "Api", description="Nitro: jobs and rounds", create_default_stage=False
        )
        integration = integrations.HttpServiceDiscoveryIntegration("Scaler", service, vpc_link=link)
        for path, method in _ROUTES:
            api.add_routes(
                path=path,
                methods=[method],
                integration=integration,
                authorizer=authorizers.HttpIamAuthorizer() if config.endpoint == "iam" else None,
            )
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=api,
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=config.requests_per_s, burst_limit=2 * config.requests_per_s
            ),
        )
        # Below this prefix API Gateway needs no entry in the account's one policy of log groups,
        # which has room for a few only.
        name = f"/aws/vendedlogs/{config.name}/api"
        _log_access(stage, nitro_log_group(self, "AccessLog", config=config, name=name))
        self.url = stage.url


def _log_access(stage: apigateway.HttpStage, log_group: logs.LogGroup) -> None:
    """Log callers, paths and outcomes, but no headers or queries, which may contain secrets."""
    resource = stage.node.default_child
    assert isinstance(resource, apigateway.CfnStage)
    resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
        destination_arn=log_group.log_group_arn,
        format=json.dumps({name: f"$context.{variable}" for name, variable in _LOGGED.items()}),
    )
