"""The output of `make deploy`: the API's address, its token, and created resources."""

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_

from cdk.scaler_service import PORT_NUMBER, ScalerService
from cdk.stores import Stores
from shared.service.tokens import TOKEN_HEADER


def write_outputs(
    stack: Stack,
    *,
    url: str | None,
    signed: bool,
    cluster: ecs.ICluster,
    alias: lambda_.Alias,
    stores: Stores,
    scaler: ScalerService,
) -> None:
    """Add the stack's outputs; the token itself is in none of them.

    Args:
        stack: Whose outputs they are.
        url: The endpoint, None without one.
        signed: Whether the endpoint asks for an AWS signature.
        cluster: Where the services run.
        alias: What the scaler invokes.
        stores: What outlives a process.
        scaler: What port forwarding leads to.
    """
    read_token = (
        f"aws secretsmanager get-secret-value --region {stack.region} "
        f"--secret-id {stores.token.secret_arn} --query SecretString --output text"
    )
    viewer = read_token.replace(stores.token.secret_arn, stores.viewer_token.secret_arn)
    base = f"http://127.0.0.1:{PORT_NUMBER}" if url is None else url.removesuffix("/")
    if url is None:
        told = "There is no public endpoint: run this first, and leave it running"
        _output(stack, "PortForward", told, _port_forward(stack, cluster, scaler))
    _output(stack, "ApiUrl", "Value of NITRO_API_URL", base)
    _output(stack, "ReadToken", "Prints the token of the API", read_token)
    _output(stack, "ReadViewerToken", "Prints the viewer's token", viewer)
    _output(
        stack,
        "FirstCurl",
        "Lists the jobs: none yet",
        f"curl --fail-with-body {_who(stack, read_token, signed=signed)} {base}/v1/jobs",
    )
    if signed:
        _output(stack, "SignFor", "Value of NITRO_SIGN_FOR", stack.region)
    _output(stack, "ActorAlias", "The actor, as the scaler invokes it", alias.function_arn)
    _output(stack, "RunsBucket", "Where runs are kept", stores.runs.bucket_name)
    _output(stack, "JobsTable", "Where jobs are kept", stores.jobs.table_name)


def _output(stack: Stack, name: str, description: str, value: str) -> None:
    CfnOutput(stack, name, description=description, value=value)


def _who(stack: Stack, read_token: str, *, signed: bool) -> str:
    """Return curl's options for authentication."""
    if not signed:
        return f'-H "Authorization: Bearer $({read_token})"'
    return (
        f'--aws-sigv4 "aws:amz:{stack.region}:execute-api" '
        '--user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" '
        '-H "X-Amz-Security-Token: $AWS_SESSION_TOKEN" '
        f'-H "{TOKEN_HEADER}: $({read_token})"'
    )


def _port_forward(stack: Stack, cluster: ecs.ICluster, scaler: ScalerService) -> str:
    """Return a command that needs the AWS CLI and its Session Manager plug-in."""
    at = f"--region {stack.region} --cluster {cluster.cluster_name}"
    task = (
        f"$(aws ecs list-tasks {at} --service-name {scaler.service.service_name} "
        "--query taskArns[0] --output text)"
    )
    runtime = (
        f"$(aws ecs describe-tasks {at} --tasks {task} "
        "--query tasks[0].containers[0].runtimeId --output text)"
    )
    target = f"ecs:{cluster.cluster_name}_$(basename {task})_{runtime}"
    return (
        f"aws ssm start-session --region {stack.region} --target {target} "
        "--document-name AWS-StartPortForwardingSession "
        f"--parameters portNumber={PORT_NUMBER},localPortNumber={PORT_NUMBER}"
    )
