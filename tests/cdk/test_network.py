"""Who can talk to whom."""

import re

import pytest

from shared.deployment.config import ConfigError
from shared.deployment.zones import NUM_ZONES
from tests.cdk.template import Synthesised, Variant, text

_NOWHERE = "255.255.255.255/32"
_ALLOWED_IN_DESCRIPTIONS = re.compile(r"^[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}$")
_CACHE, _API = 6379, 8080


def _group(reference: object) -> str:
    """Name of a security group: `<NetworkCache3E6613A3.GroupId>` is `Cache`."""
    name = re.fullmatch(r"<Network(\w+?)[0-9A-F]{8}\.GroupId>", text(reference))
    assert name, reference
    return name[1]


def _ways_in(stack: Synthesised) -> set[tuple[str, str, int]]:
    return {
        (_group(rule["SourceSecurityGroupId"]), _group(rule["GroupId"]), rule["FromPort"])
        for rule in stack.of_type("AWS::EC2::SecurityGroupIngress").values()
    }


def _ways_out(stack: Synthesised) -> set[tuple[str, str, int]]:
    between = {
        (_group(rule["GroupId"]), _group(rule["DestinationSecurityGroupId"]), rule["FromPort"])
        for rule in stack.of_type("AWS::EC2::SecurityGroupEgress").values()
    }
    beyond = {
        (re.sub(r"^Network|[0-9A-F]{8}$", "", name), rule["CidrIp"], rule["FromPort"])
        for name, group in stack.of_type("AWS::EC2::SecurityGroup").items()
        for rule in group["SecurityGroupEgress"]
        if rule["CidrIp"] != _NOWHERE
    }
    return between | beyond


def _subnet_of_actors(stack: Synthesised) -> str:
    (subnet,) = stack.named("AWS::Lambda::Function", "Actor")["VpcConfig"]["SubnetIds"]
    return text(subnet)


def test_connections_go_this_way_and_no_other(synthesised: Synthesised) -> None:
    inside = {
        ("Actors", "Cache", _CACHE),
        ("Scaler", "Cache", _CACHE),
        ("Learner", "Cache", _CACHE),
        ("Learner", "Scaler", _API),
        ("ApiLink", "Scaler", _API),
    }
    assert _ways_in(synthesised) == inside
    assert _ways_out(synthesised) == inside | {
        ("Scaler", "0.0.0.0/0", 443),
        ("Learner", "0.0.0.0/0", 443),
        ("LearnerHost", "0.0.0.0/0", 443),
    }


def test_without_an_endpoint_only_the_learner_reaches_the_scaler(variant: Variant) -> None:
    to_scaler = {rule for rule in _ways_in(variant(endpoint="none")) if rule[1] == "Scaler"}
    assert to_scaler == {("Learner", "Scaler", _API)}


def test_nothing_is_let_in_from_an_address(synthesised: Synthesised) -> None:
    for group in synthesised.of_type("AWS::EC2::SecurityGroup").values():
        assert "SecurityGroupIngress" not in group
    for rule in synthesised.of_type("AWS::EC2::SecurityGroupIngress").values():
        assert not {"CidrIp", "CidrIpv6", "SourcePrefixListId"} & rule.keys()


def test_no_group_keeps_the_default_way_out(synthesised: Synthesised) -> None:
    for group in synthesised.of_type("AWS::EC2::SecurityGroup").values():
        assert group["SecurityGroupEgress"], "EC2 would let it talk to anywhere"
        assert all(rule["IpProtocol"] != "-1" for rule in group["SecurityGroupEgress"])


def test_ec2_takes_the_descriptions(synthesised: Synthesised) -> None:
    described = [
        rule["Description"]
        for kind in ("Ingress", "Egress")
        for rule in synthesised.of_type(f"AWS::EC2::SecurityGroup{kind}").values()
    ]
    for group in synthesised.of_type("AWS::EC2::SecurityGroup").values():
        described.append(group["GroupDescription"])
        described.extend(rule["Description"] for rule in group["SecurityGroupEgress"])
    assert [d for d in described if not _ALLOWED_IN_DESCRIPTIONS.match(d)] == []


def test_there_is_nothing_to_pay_for_in_the_network(synthesised: Synthesised) -> None:
    assert not synthesised.of_type("AWS::EC2::NatGateway")
    assert not synthesised.of_type("AWS::ElasticLoadBalancingV2::LoadBalancer")
    endpoints = synthesised.of_type("AWS::EC2::VPCEndpoint").values()
    assert {text(e["ServiceName"]).rsplit(".", 1)[1] for e in endpoints} == {"s3", "dynamodb"}
    assert {e["VpcEndpointType"] for e in endpoints} == {"Gateway"}


def test_the_subnet_of_actors_and_cache_has_no_route(synthesised: Synthesised) -> None:
    routes = [text(r["RouteTableId"]) for r in synthesised.of_type("AWS::EC2::Route").values()]
    for endpoint in synthesised.of_type("AWS::EC2::VPCEndpoint").values():
        routes += [text(table) for table in endpoint["RouteTableIds"]]
    assert routes
    assert [table for table in routes if "VpcactorsSubnet" in table] == []
    assert "VpcactorsSubnet" in _subnet_of_actors(synthesised)


def test_actors_and_cache_share_a_zone_and_a_gpu_may_come_from_several(
    synthesised: Synthesised,
) -> None:
    (of_cache,) = synthesised.only("AWS::ElastiCache::SubnetGroup")["SubnetIds"]
    assert text(of_cache) == _subnet_of_actors(synthesised)
    group = synthesised.only("AWS::AutoScaling::AutoScalingGroup")
    subnets = synthesised.of_type("AWS::EC2::Subnet")
    zones = {text(subnets[s["Ref"]]["AvailabilityZone"]) for s in group["VPCZoneIdentifier"]}
    assert len(zones) == NUM_ZONES


def test_zones_that_are_named_are_those_of_the_subnets(changed: Synthesised) -> None:
    subnets = changed.of_type("AWS::EC2::Subnet")
    assert {s["AvailabilityZone"] for s in subnets.values()} == {"eu-west-3a", "eu-west-3c"}
    (actors,) = [s for name, s in subnets.items() if name in _subnet_of_actors(changed)]
    assert actors["AvailabilityZone"] == "eu-west-3a"


_IDS = {"us-east-1a": "use1-az3", "us-east-1b": "use1-az1", "us-east-1c": "use1-az2"}


def _zones(stack: Synthesised) -> set[str]:
    return {subnet["AvailabilityZone"] for subnet in stack.of_type("AWS::EC2::Subnet").values()}


def test_zones_without_a_way_in_for_api_gateway_are_passed_over(variant: Variant) -> None:
    answer = {"zone_ids": _IDS}
    assert _zones(variant(answer=answer)) == {"us-east-1b", "us-east-1c"}
    assert _zones(variant(answer=answer, endpoint="none")) == {"us-east-1a", "us-east-1b"}
    with pytest.raises(ConfigError, match="no way into us-east-1a, which is use1-az3"):
        variant(answer=answer, availability_zones=["us-east-1a", "us-east-1b"])
    with pytest.raises(ConfigError, match="no way into two of us-east-1a, us-east-1b"):
        variant(answer={"zone_ids": dict(list(_IDS.items())[:2])})


def test_the_scaler_is_in_the_caches_zone(synthesised: Synthesised) -> None:
    subnets = synthesised.of_type("AWS::EC2::Subnet")
    (of_cache,) = synthesised.only("AWS::ElastiCache::SubnetGroup")["SubnetIds"]
    zone = subnets[of_cache["Ref"]]["AvailabilityZone"]
    network = synthesised.only("AWS::ECS::Service")["NetworkConfiguration"]
    (subnet,) = network["AwsvpcConfiguration"]["Subnets"]
    assert subnets[subnet["Ref"]]["AvailabilityZone"] == zone


def test_the_way_out_outlasts_whatever_has_a_public_address(synthesised: Synthesised) -> None:
    resources = synthesised.template["Resources"]
    (attachment,) = synthesised.of_type("AWS::EC2::VPCGatewayAttachment")
    routes = set(synthesised.of_type("AWS::EC2::Route"))
    assert len(routes) == NUM_ZONES
    for route in routes:
        assert attachment in resources[route]["DependsOn"]
    (machines,) = synthesised.of_type("AWS::AutoScaling::AutoScalingGroup")
    (scaler,) = synthesised.of_type("AWS::ECS::Service")
    for name in (scaler, machines):
        assert routes <= set(resources[name]["DependsOn"])


def test_refused_traffic_is_logged(synthesised: Synthesised) -> None:
    assert synthesised.only("AWS::EC2::FlowLog")["TrafficType"] == "REJECT"
