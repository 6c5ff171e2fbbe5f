"""The network: two kinds of subnets, one security group per part, no NAT.

Actors and cache sit in an isolated subnet without a route to anywhere; Lambda pulls the image and
ships the logs from outside. Scaler and learner sit in public subnets because a NAT gateway costs
more a month than either of them; nothing may open a connection to them from outside. Gateway
endpoints carry S3 and DynamoDB traffic for free. `stack.py` has the allowed connections.
"""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct, IDependable

from cdk.stores import nitro_log_group
from shared.deployment.config import NitroConfig
from shared.deployment.zones import NUM_ZONES

PUBLIC = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
_NOWHERE = ec2.Peer.ipv4("255.255.255.255/32")
"""EC2 lets a group without a rule of its own talk to anywhere, and CDK counts rules between groups
as its own though CloudFormation adds them later; so every group begins with a rule for nowhere."""
HTTPS = ec2.Port.tcp(443)


class Network(Construct):
    """VPC, subnets, endpoints, flow log, and security groups without rules yet."""

    def __init__(self, scope: Construct, id: str, *, config: NitroConfig) -> None:
        super().__init__(scope, id)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(config.vpc_cidr),
            max_azs=NUM_ZONES,
            nat_gateways=0,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="services",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=24,
                    map_public_ip_on_launch=False,
                ),
                ec2.SubnetConfiguration(
                    name="actors", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=24
                ),
            ],
            gateway_endpoints={
                name: ec2.GatewayVpcEndpointOptions(service=service, subnets=[PUBLIC])
                for name, service in (
                    ("S3", ec2.GatewayVpcEndpointAwsService.S3),
                    ("DynamoDb", ec2.GatewayVpcEndpointAwsService.DYNAMODB),
                )
            },
            # Would add a Lambda function that edits the default group; nothing of ours uses it.
            restrict_default_security_group=False,
        )
        # Of one in each zone actors and cache use one: traffic between zones is billed. Its
        # addresses do for any number of actors, which share network interfaces.
        self.isolated = self.vpc.isolated_subnets[0]
        self.near_the_cache = ec2.SubnetSelection(subnets=[self.vpc.public_subnets[0]])
        """For services: the public subnet in the zone of actors and cache."""
        self._log_refusals(nitro_log_group(self, "Refusals", config=config))
        self.actors = self._group("Actors", "Nitro actors: may reach the cache, nothing else")
        self.cache = self._group("Cache", "Nitro trajectory cache")
        self.scaler = self._group("Scaler", "Nitro scaler")
        self.learner = self._group("Learner", "Nitro learner task")
        self.api_link = self._group("ApiLink", "Path from API Gateway to the Nitro scaler")

    def learner_host(self) -> ec2.SecurityGroup:
        """Add the group of the machine below the learner with a GPU."""
        return self._group("LearnerHost", "Machine the Nitro learner runs on")

    def _group(self, id: str, description: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self, id, vpc=self.vpc, description=description, allow_all_outbound=False
        )
        group.add_egress_rule(_NOWHERE, ec2.Port.icmp_ping(), "Instead of the default, to anywhere")
        return group

    def _log_refusals(self, log_group: logs.LogGroup) -> None:
        """Log refused traffic only: accepted traffic is long, expensive and uninteresting."""
        self.vpc.add_flow_log(
            "FlowLog",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(log_group),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )

    def way_out(self) -> IDependable:
        """Return the public subnets' routes to the internet, which its attachment outlasts.

        The VPC's own `internet_connectivity_established` is the gateway alone: CloudFormation would
        delete attachment and routes while a public address is still in use, and fail.
        """
        selected = self.vpc.select_subnets(subnet_type=PUBLIC.subnet_type)
        return selected.internet_connectivity_established
