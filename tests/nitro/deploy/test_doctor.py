"""`nitro doctor` and `nitro doctor --aws` as a user runs them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.errors import EXIT_FAILED, EXIT_USAGE
from shared.deployment.config import ACCOUNT_CONTEXT_KEY
from tests.own_prices import FRANKFURT
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, lambda_endpoint, serve

G_QUOTA, P_QUOTA, FARGATE_QUOTA = "L-DB2E81BA", "L-417A185B", "L-3032A538"


@dataclass
class Quotas:
    """Service Quotas as far as we ask it: moto knows the quotas of VPCs only."""

    values: dict[str, float] = field(
        default_factory=lambda: {G_QUOTA: 64.0, P_QUOTA: 0.0, FARGATE_QUOTA: 6.0}
    )

    async def answer(self, request: Request) -> JSONResponse:
        assert request.headers["x-amz-target"] == "ServiceQuotasV20190624.GetServiceQuota"
        body = await request.json()
        value = self.values.get(body["QuotaCode"])
        if value is None:
            error = {"__type": "NoSuchResourceException", "Message": "none"}
            return JSONResponse(error, status_code=400)
        return JSONResponse({"Quota": {"QuotaCode": body["QuotaCode"], "Value": value}})


@pytest.fixture
def quotas(aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Quotas]:
    del aws  # EC2 is moto's
    known = Quotas()
    with serve(Starlette(routes=[Route("/", known.answer, methods=["POST"])])) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SERVICE_QUOTAS", url)
        yield known


@pytest.fixture
def lambdas(aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LambdaEndpoint]:
    del aws
    with lambda_endpoint() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", endpoint.url)
        yield endpoint


def doctor(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["doctor", *arguments])


def ask(folder: Path) -> tuple[int, dict[str, dict[str, str]], dict[str, Any]]:
    """Return exit code, findings by name and the whole report."""
    result = doctor("--aws", "--json", "--folder", str(folder))
    report = json.loads(result.stdout)
    return result.exit_code, {f["name"]: f for f in report["findings"]}, report


def configure(folder: Path, **fields: object) -> None:
    (folder / "cdk.json").write_text(json.dumps({"context": {"nitro": fields}}))


def refusal(folder: Path, *, exit_code: int = EXIT_USAGE) -> str:
    """Return what is said where the account cannot be examined."""
    result = doctor("--aws", "--folder", str(folder))
    assert result.exit_code == exit_code
    return result.stderr


def context(folder: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((folder / "cdk.context.json").read_text())
    return found


@pytest.fixture
def ecs_role() -> Iterator[None]:
    """The role as AWS names it; moto has another spelling for roles that services ask for."""
    iam, name = boto3.client("iam"), "AWSServiceRoleForECS"
    iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    yield
    iam.delete_role(RoleName=name)


@pytest.mark.usefixtures("quotas", "lambdas", "ecs_role")
def test_an_account_that_can_run_the_stack(tmp_path: Path) -> None:
    configure(tmp_path, alarm_email="ops@example.org")
    code, findings, report = ask(tmp_path)
    assert code == 0
    assert {finding["verdict"] for finding in findings.values()} == {"ok"}
    # As of 2026 no region offers p3.2xlarge any more.
    assert findings["GPU machines"]["found"].endswith("; not offered: p3.2xlarge")
    answer = context(tmp_path)[ACCOUNT_CONTEXT_KEY]
    assert answer["offered_instance_types"] == ["g6.2xlarge", "g5.2xlarge", "g4dn.2xlarge"]
    assert (answer["lambda_concurrency"], answer["gpu_vcpus"]) == (1000, 64)
    assert str(answer["checked_at"]).endswith("+00:00")
    assert report["answer"] == answer


@pytest.mark.usefixtures("lambdas")
def test_what_a_new_account_lacks_is_told_with_what_to_do(tmp_path: Path, quotas: Quotas) -> None:
    quotas.values[FARGATE_QUOTA] = 2.0
    code, findings, _ = ask(tmp_path)
    assert code == 0
    told = {name: f["advice"] for name, f in findings.items() if f["verdict"] == "warning"}
    assert told.keys() == {"Fargate vCPUs", "ECS role", "alarms"}
    assert f"--quota-code {FARGATE_QUOTA} --desired-value 3" in told["Fargate vCPUs"]
    assert "create-service-linked-role" in told["ECS role"]
    assert "alarm_email" in told["alarms"]
    quotas.values[FARGATE_QUOTA] = 0.0
    assert ask(tmp_path)[0] == EXIT_FAILED, "the scaler itself would not start"


@pytest.mark.usefixtures("quotas", "lambdas")
def test_zones_that_api_gateway_cannot_reach_into_are_not_taken(tmp_path: Path) -> None:
    ids = ask(tmp_path)[2]["answer"]["zone_ids"]
    (unreachable,) = (name for name, zone_id in ids.items() if zone_id == "use1-az3")
    others = sorted(ids.keys() - {unreachable})
    found = ask(tmp_path)[1]["zones"]["found"]
    assert found == ", ".join(f"{name} ({ids[name]})" for name in others[:2])
    configure(tmp_path, availability_zones=[others[0], unreachable])
    code, findings, _ = ask(tmp_path)
    assert (code, findings["zones"]["verdict"]) == (EXIT_FAILED, "wrong")
    configure(tmp_path, availability_zones=[others[0], unreachable], endpoint="none")
    assert ask(tmp_path)[0] == 0


@pytest.mark.usefixtures("quotas", "lambdas")
def test_the_tables_show_findings_and_costs(tmp_path: Path) -> None:
    result = doctor("--aws", "--folder", str(tmp_path))
    assert result.exit_code == 0, result.output
    for words in ("GPU vCPUs", "learner, g6.2xlarge", "provisioned concurrency, 64 x 1 GB"):
        assert words in result.stdout


def test_a_new_account_is_told_which_quotas_to_raise_and_how(
    tmp_path: Path, quotas: Quotas, lambdas: LambdaEndpoint
) -> None:
    quotas.values[G_QUOTA] = 0.0
    lambdas.concurrency_limit = 10
    code, findings, report = ask(tmp_path)
    assert code == 0, "the default job needs neither"
    vcpus, concurrency = findings["GPU vCPUs"], findings["Lambda concurrency"]
    assert (vcpus["verdict"], concurrency["verdict"]) == ("warning", "warning")
    assert "has no learner with a GPU" in vcpus["found"]
    assert [item for item in report["costs"] if "g6" in item["name"]] == []
    assert "at most 10 actors, 0 of them kept warm" in concurrency["found"]
    assert "Running On-Demand G and VT instances" in vcpus["advice"]
    assert f"--quota-code {G_QUOTA} --desired-value 8" in vcpus["advice"]
    assert "--service-code lambda --quota-code L-B99A9384" in concurrency["advice"]
    answer = context(tmp_path)[ACCOUNT_CONTEXT_KEY]
    assert (answer["lambda_concurrency"], answer["gpu_vcpus"]) == (10, 0)
    assert answer["offered_instance_types"] == []


def test_a_smaller_cap_in_cdk_json_is_enough_for_a_smaller_limit(
    tmp_path: Path, quotas: Quotas, lambdas: LambdaEndpoint
) -> None:
    lambdas.concurrency_limit = 150
    assert ask(tmp_path)[0] == 0, "without a cap nothing has to be reserved"
    configure(tmp_path, actor_concurrency=200)
    code, findings, _ = ask(tmp_path)
    assert code == EXIT_FAILED
    assert "at most 50" in findings["Lambda concurrency"]["advice"]
    configure(tmp_path, actor_concurrency=50, provisioned_concurrency=8)
    assert ask(tmp_path)[0] == 0


@pytest.mark.usefixtures("quotas")
@pytest.mark.parametrize(("reserved", "verdict"), [(700, "ok"), (701, "warning")])
def test_what_other_functions_have_reserved_is_no_longer_to_be_had(
    tmp_path: Path, lambdas: LambdaEndpoint, reserved: int, verdict: str
) -> None:
    lambdas.reserved_by_others = reserved
    configure(tmp_path, actor_concurrency=200)
    code, findings, _ = ask(tmp_path)
    assert code == 0, "after a deployment they are reserved by the stack itself"
    assert findings["Lambda concurrency"]["verdict"] == verdict
    assert ("701 are reserved" in findings["Lambda concurrency"]["found"]) == (reserved == 701)


@pytest.mark.usefixtures("quotas", "lambdas")
def test_the_region_the_cdk_would_deploy_to_is_the_one_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-2")  # wins over AWS_DEFAULT_REGION and profile
    assert ask(tmp_path)[2]["region"] == "eu-west-2"
    configure(tmp_path, account="123456789012", region="eu-west-1")
    assert ask(tmp_path)[2]["region"] == "eu-west-1"


@pytest.mark.usefixtures("quotas", "lambdas")
@pytest.mark.parametrize("types", [["p3.2xlarge"], []])
def test_without_a_machine_the_stack_goes_without_a_gpu(tmp_path: Path, types: list[str]) -> None:
    configure(tmp_path, learner_instance_types=types)
    code, findings, _ = ask(tmp_path)
    assert (code, findings["GPU machines"]["verdict"]) == (0, "warning" if types else "ok")
    found = findings["GPU machines"]["found"]
    words = "none of p3.2xlarge is offered in us-east-1a and us-east-1b" if types else "none in"
    assert found.startswith(words)
    assert "GPU vCPUs" not in findings
    assert context(tmp_path)[ACCOUNT_CONTEXT_KEY]["offered_instance_types"] == []


@pytest.mark.usefixtures("quotas", "lambdas")
def test_where_the_account_does_not_say_what_it_offers_only_retired_types_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(request: Request) -> Response:
        del request
        error = "<Response><Errors><Error><Code>UnauthorizedOperation</Code></Error></Errors>"
        return Response(f"{error}</Response>", status_code=403, media_type="text/xml")

    with serve(Starlette(routes=[Route("/", refuse, methods=["POST"])])) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", url)
        code, findings, _ = ask(tmp_path)
    assert (code, findings["GPU machines"]["verdict"]) == (0, "warning")
    assert "p3.2xlarge left out" in findings["GPU machines"]["found"]
    answer = context(tmp_path)[ACCOUNT_CONTEXT_KEY]
    assert answer["offered_instance_types"] == ["g6.2xlarge", "g5.2xlarge", "g4dn.2xlarge"]


@pytest.mark.usefixtures("quotas", "lambdas")
def test_the_zones_of_the_stack_are_those_that_are_asked(tmp_path: Path) -> None:
    configure(
        tmp_path,
        learner_instance_types=["g6e.xlarge", "g6.2xlarge"],
        availability_zones=["us-east-1e", "us-east-1f"],
    )
    found = ask(tmp_path)[1]["GPU machines"]["found"]
    # The first choice is offered in the region's other zones.
    left_out = "not offered: g6e.xlarge"
    assert found == f"g6.2xlarge in us-east-1e and us-east-1f; {left_out}"


@pytest.mark.usefixtures("lambdas")
def test_what_the_account_will_not_tell_is_a_warning(tmp_path: Path, quotas: Quotas) -> None:
    quotas.values.clear()
    code, findings, _ = ask(tmp_path)
    assert code == 0
    assert findings["GPU vCPUs"]["verdict"] == "warning"
    refused = findings["servicequotas:GetServiceQuota"]
    assert refused["found"] == "refused: NoSuchResourceException"
    assert context(tmp_path)[ACCOUNT_CONTEXT_KEY]["gpu_vcpus"] is None


@pytest.mark.usefixtures("quotas", "lambdas")
def test_the_rest_of_the_context_stays(tmp_path: Path) -> None:
    kept = {"availability-zones:account=1:region=r": ["a"], ACCOUNT_CONTEXT_KEY: {"old": True}}
    (tmp_path / "cdk.context.json").write_text(json.dumps(kept))
    ask(tmp_path)
    found = context(tmp_path)
    assert (
        found["availability-zones:account=1:region=r"]
        == kept["availability-zones:account=1:region=r"]
    )
    assert "old" not in str(found[ACCOUNT_CONTEXT_KEY])
    assert [path.name for path in tmp_path.iterdir()] == ["cdk.context.json"]


@pytest.mark.usefixtures("quotas", "lambdas")
@pytest.mark.parametrize(("text", "words"), [("[]", "is not a CDK context"), ("{", "is not JSON")])
def test_a_context_that_is_none_is_not_overwritten(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "cdk.context.json").write_text(text)
    assert words in refusal(tmp_path)
    assert (tmp_path / "cdk.context.json").read_text() == text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "cannot be read as a CDK configuration"),
        ('{"context": {"nitro": {"actor_concurrency": 0}}}', "actor_concurrency: Input should"),
        ('{"context": {"nitro": {"cache_nod_type": "x"}}}', "cache_nod_type: no such field"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path: Path, config: str, words: str) -> None:
    (tmp_path / "cdk.json").write_text(config)
    assert words in refusal(tmp_path)


def test_without_credentials_it_says_how_to_get_some(
    tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del aws
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "no usable AWS credentials: sign in" in refusal(tmp_path)
    assert not (tmp_path / "cdk.context.json").exists()


def test_without_a_region_it_asks_for_one(
    tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del aws
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert "--region" in refusal(tmp_path)


def test_an_aws_that_cannot_be_reached_is_told_so(
    tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del aws
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:9")
    told = refusal(tmp_path, exit_code=EXIT_FAILED)
    assert "ec2:DescribeAvailabilityZones: Could not connect" in told


def test_without_boto3_it_names_the_extra(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['boto3'] = None;"
        "from nitro.cli.main import app; app(['doctor', '--aws', '--folder', sys.argv[1]])"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_USAGE
    assert "needs boto3" in done.stderr
    assert "extra `local`" in done.stderr


def test_this_machine_can_run_nitro(tmp_path: Path) -> None:
    result = doctor("--json", "--runs-dir", str(tmp_path / "runs"))
    findings = {f["name"]: f for f in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 0, findings
    for name in ("Python", "packages", "cores", "memory", "cache server", "ports", "runs folder"):
        assert findings[name]["found"]
    assert "torch" in findings["learner's device"]["found"]
    assert not (tmp_path / "runs").exists(), "looking leaves no trace"


def test_a_folder_that_cannot_be_written_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = doctor("--runs-dir", str(tmp_path / "file" / "runs"))
    assert result.exit_code == EXIT_FAILED
    assert "cannot be written" in result.stdout


@pytest.mark.usefixtures("quotas", "lambdas")
def test_prices_of_another_region_are_told(tmp_path: Path) -> None:
    _, usual, before = ask(tmp_path)
    configure(tmp_path, learner_instance_types=["g6.2xlarge"], prices=FRANKFURT)
    code, findings, report = ask(tmp_path)
    assert code == 0
    assert usual["prices"]["verdict"] == "ok"
    assert usual["prices"]["found"] == "aws-us-east-1-2026-11, of us-east-1"
    assert findings["prices"]["verdict"] == "warning"
    assert "frankfurt, of eu-central-1; the stack is for us-east-1" in findings["prices"]["found"]
    assert "docs/operations.md" in findings["prices"]["advice"]
    usual_usd, usd = before["busy_usd_per_hour"], report["busy_usd_per_hour"]
    assert isinstance(usual_usd, float)
    assert usd == pytest.approx(usual_usd + 1.25 - 0.9776 + 0.015 - 0.0128)


@pytest.mark.usefixtures("quotas", "lambdas")
def test_types_without_a_price_are_named(tmp_path: Path) -> None:
    deployment = {
        "cache_node_type": "cache.r7g.large",
        "prices": {**FRANKFURT, "region": "us-east-1"},
    }
    configure(tmp_path, **deployment, learner_instance_types=["g6.2xlarge"])
    assert "no price for 'cache.r7g.large'" in refusal(tmp_path)
    configure(tmp_path, **deployment, learner_instance_types=["g6.2xlarge", "p3.2xlarge"])
    assert "no price for 'p3.2xlarge'" in refusal(tmp_path)
