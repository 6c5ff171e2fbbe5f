"""The users' door, in its three forms."""

import json

from tests.cdk.template import Synthesised, Variant, text

_ROUTES = {
    "GET /",
    "GET /docs",
    "GET /web/{proxy+}",
    "ANY /v1/{proxy+}",
    "GET /healthz",
    "GET /readyz",
    "GET /openapi.json",
}


def test_the_api_is_let_through_and_metrics_are_not(synthesised: Synthesised) -> None:
    routes = synthesised.of_type("AWS::ApiGatewayV2::Route").values()
    assert {route["RouteKey"] for route in routes} == _ROUTES
    assert {route["AuthorizationType"] for route in routes} == {"NONE"}


def test_requests_go_to_the_scaler_through_the_vpc(synthesised: Synthesised) -> None:
    integration = synthesised.only("AWS::ApiGatewayV2::Integration")
    assert integration["ConnectionType"] == "VPC_LINK"
    assert text(integration["IntegrationUri"]).startswith("<ScalerDiscovery")
    (group,) = synthesised.only("AWS::ApiGatewayV2::VpcLink")["SecurityGroupIds"]
    assert text(group).startswith("<NetworkApiLink")


def test_requests_are_throttled_and_logged_without_secrets(synthesised: Synthesised) -> None:
    stage = synthesised.only("AWS::ApiGatewayV2::Stage")
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": 50,
        "ThrottlingBurstLimit": 100,
    }
    groups = synthesised.of_type("AWS::Logs::LogGroup").values()
    assert "/aws/vendedlogs/nitro/api" in {group.get("LogGroupName") for group in groups}
    logged = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"status", "path", "from"} <= logged.keys()
    assert not [v for v in logged.values() if "header" in v.lower() or "query" in v.lower()]


def test_the_user_is_told_where_how_and_what_first(synthesised: Synthesised) -> None:
    url = synthesised.output("ApiUrl")
    assert url.startswith("https://<ApiEndpointApi")
    assert not url.endswith("/")
    read = synthesised.output("ReadToken")
    assert read.startswith("aws secretsmanager get-secret-value --region <AWS::Region>")
    assert synthesised.output("FirstCurl").endswith(f'$({read})" {url}/v1/jobs')
    assert synthesised.output("ActorAlias").startswith("<ActorLive")
    assert synthesised.output("RunsBucket").startswith("<StoresRuns")
    assert synthesised.output("JobsTable").startswith("<StoresJobs")


def test_an_iam_signature_can_be_asked_for_as_well(variant: Variant) -> None:
    routes = variant(endpoint="iam").of_type("AWS::ApiGatewayV2::Route").values()
    assert {route["AuthorizationType"] for route in routes} == {"AWS_IAM"}


def test_who_must_sign_is_told_how(variant: Variant) -> None:
    stack = variant(endpoint="iam")
    curl = stack.output("FirstCurl")
    assert '--aws-sigv4 "aws:amz:<AWS::Region>:execute-api"' in curl
    assert f'-H "X-Nitro-Token: $({stack.output("ReadToken")})"' in curl
    assert "Bearer" not in curl
    assert stack.output("SignFor") == "<AWS::Region>"


def test_there_can_be_no_endpoint_at_all(variant: Variant) -> None:
    stack = variant(endpoint="none")
    kinds = {resource["Type"] for resource in stack.template["Resources"].values()}
    assert not [kind for kind in kinds if kind.startswith("AWS::ApiGateway")]
    assert "AWS-StartPortForwardingSession" in stack.output("PortForward")
    assert stack.output("ApiUrl") == "http://127.0.0.1:8080"
