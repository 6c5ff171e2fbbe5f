"""The trajectory cache: one ElastiCache node, TLS only, no password anywhere.

Clients authenticate with their IAM role (a locally signed password, so actors need only the cache);
each role has its own user. Nothing in the cache is needed once its round is over, so there are
neither replicas nor backups: a lost cache costs the rounds in flight.
"""

from typing import Literal

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticache as elasticache
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk.network import Network
from shared.deployment.config import NitroConfig

Role = Literal["actor", "scaler", "learner"]
ROLES: tuple[Role, ...] = ("actor", "scaler", "learner")
PORT = ec2.Port.tcp(6379)

ACCESS = (
    "on ~nitro:* resetchannels "
    "-@all +@read +@write +@connection +@scripting +@transaction -@dangerous +info"
)
"""Permissions of every role's user: our keys, no `KEYS`, `FLUSHALL`, `CONFIG` or `ACL`.
`INFO` says how full the cache is."""
DISABLED = "off ~* resetchannels -@all"
"""The user named `default`: ElastiCache wants it in a Redis group, nobody may use it."""

_VERSIONS = {"redis": ("7.1", "redis7"), "valkey": ("8.0", "valkey8")}
"""Engine version and parameter family; IAM authentication needs 7.0 (Redis) or 7.2 (Valkey)."""


class TrajectoryCache(Construct):
    """The cache and its users."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        network: Network,
    ) -> None:
        super().__init__(scope, id)
        self.name = config.name
        """Of the replication group; part of every IAM token."""
        self._engine = config.cache_engine
        version, family = _VERSIONS[config.cache_engine]
        users = [
            self._user(f"{role.capitalize()}User", self.user(role), name=self.user(role))
            for role in ROLES
        ]
        if config.cache_engine == "redis":
            disabled = {"name": "default", "access": DISABLED, "mode": "no-password-required"}
            users.append(self._user("DisabledDefaultUser", f"{self.name}-default", **disabled))
        group = elasticache.CfnUserGroup(
            self,
            "Users",
            engine=config.cache_engine,
            user_group_id=f"{config.name}-users",
            user_ids=[user.user_id for user in users],
        )
        for user in users:
            group.add_resource_dependency(user)
        self._cache = elasticache.CfnReplicationGroup(
            self,
            "Cache",
            replication_group_id=config.name,
            replication_group_description="Nitro trajectories and policies in flight",
            engine=config.cache_engine,
            engine_version=version,
            cache_node_type=config.cache_node_type,
            cache_parameter_group_name=self._parameters(family),
            num_cache_clusters=1,
            automatic_failover_enabled=False,
            multi_az_enabled=False,
            auto_minor_version_upgrade=True,
            snapshot_retention_limit=0,
            transit_encryption_enabled=True,
            at_rest_encryption_enabled=True,
            user_group_ids=[group.ref],
            cache_subnet_group_name=self._subnet_group(network.isolated),
            security_group_ids=[network.cache.security_group_id],
        )

    def user(self, role: Role) -> str:
        """Return the name (and id: IAM wants them equal) of a role's user."""
        return f"{self.name}-{role}"

    def environment(self, role: Role) -> dict[str, str]:
        """Return the settings a role finds and enters the cache by."""
        return {
            "NITRO_CACHE_URL": f"rediss://{self._cache.attr_primary_end_point_address}:6379/0",
            "NITRO_CACHE_AUTH": "iam",
            "NITRO_CACHE_USER": self.user(role),
            "NITRO_CACHE_NAME": self.name,
            "NITRO_CACHE_REGION": Stack.of(self).region,
        }

    def grant_connect(self, grantee: iam.IGrantable, role: Role) -> iam.Grant:
        """Allow a principal to connect as one user only."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["elasticache:Connect"],
            resource_arns=[
                self._arn("replicationgroup", self.name),
                self._arn("user", self.user(role)),
            ],
        )

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(
            service="elasticache",
            resource=resource,
            resource_name=name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def _user(
        self, id: str, user_id: str, *, name: str, access: str = ACCESS, mode: str = "iam"
    ) -> elasticache.CfnUser:
        return elasticache.CfnUser(
            self,
            id,
            engine=self._engine,
            user_id=user_id,
            user_name=name,
            access_string=access,
            authentication_mode={"Type": mode},
        )

    def _parameters(self, family: str) -> str:
        """Return a parameter group: a full cache refuses a write instead of evicting a result."""
        return elasticache.CfnParameterGroup(
            self,
            "Parameters",
            cache_parameter_group_family=family,
            description="Nitro: refuse rather than evict",
            properties={"maxmemory-policy": "noeviction"},
        ).ref

    def _subnet_group(self, subnet: ec2.ISubnet) -> str:
        """Return a group of one subnet: with more of them AWS would choose the node's zone."""
        return elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            description="Nitro: one isolated subnet",
            subnet_ids=[subnet.subnet_id],
        ).ref
