"""The scaler: one small Fargate task, always on, found by name."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_logs as logs
from aws_cdk import aws_servicediscovery as servicediscovery
from constructs import Construct

from cdk.containers import USER, fargate_platform, locked_down, log_to, pulse, service_image
from cdk.functions import (
    ALIAS,
    GRADIENT_MEMORY_MB,
    GRADIENT_TIMEOUT_S,
    ActorFunction,
    GradientFunction,
    learner_families,
)
from cdk.network import PUBLIC, Network
from cdk.stores import Stores, nitro_log_group
from cdk.trajectory_cache import TrajectoryCache
from shared.contracts.learner_kind import MachineKind
from shared.deployment.config import NitroConfig
from shared.money.prices import RETIRED_INSTANCES

PORT_NUMBER = 8080
PORT = ec2.Port.tcp(PORT_NUMBER)
_NAME = "scaler"
_TTL_S = 10
_COLD_STARTS_PER_S = 100
"""All actors share one network interface, which loses connections when many open at once."""
_SSM_FOLDERS = ("/var/lib/amazon", "/var/log/amazon")
"""Writable folder of Session Manager's agent; the rest of the file system is read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerTasks:
    """The scaler's resources for learners' tasks."""

    families: Mapping[MachineKind, str]
    gpu_provider: str | None
    """Capacity provider of the machines with a GPU; None where there are none."""


class ScalerService(Construct):
    """Task, service and name."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        learner_types: tuple[str, ...],
        cluster: ecs.ICluster,
        network: Network,
        namespace: servicediscovery.IPrivateDnsNamespace,
        stores: Stores,
        cache: TrajectoryCache,
        actor: ActorFunction,
        gradient: GradientFunction,
        learners: LearnerTasks,
        learner_log: logs.ILogGroup,
    ) -> None:
        super().__init__(scope, id)
        region = Stack.of(self).region
        self.log_group = nitro_log_group(self, "Logs", config=config)
        groups = {"learner": learner_log, "scaler": self.log_group, "actor": actor.log_group}
        environment = {
            "AWS_REGION": region,  # the SDK's own: S3 has no setting of ours
            "NITRO_HOST": "0.0.0.0",
            "NITRO_PORT": str(PORT_NUMBER),
            "NITRO_STORE": "dynamodb",
            "NITRO_TABLE": stores.jobs.table_name,
            "NITRO_ARTIFACTS": stores.artifacts_url,
            "NITRO_LOG_GROUPS": Stack.of(self).to_json_string(
                {source: group.log_group_name for source, group in groups.items()}
            ),
            "NITRO_CACHE_MEMORY_MB": str(config.cache_memory_mb),
            "NITRO_LAMBDA_REGION": region,
            "NITRO_LAMBDA_FUNCTION": actor.function.function_name,
            **_actor_variables(config),
            "NITRO_GRADIENT_FUNCTION": gradient.function.function_name,
            "NITRO_GRADIENT_MEMORY_MB": str(GRADIENT_MEMORY_MB),
            "NITRO_GRADIENT_TIMEOUT_S": str(GRADIENT_TIMEOUT_S),
            **learner_families(cluster, learners.families),
            **self._learner_tasks(config, network, learners),
            **_limits_and_prices(config, learner_types),
            **cache.environment("scaler"),
        }
        self.task = self._task(config)
        self._container = self._add_container(config, environment, stores)
        port_forwarding = config.endpoint == "none"
        if port_forwarding:
            self._make_room_for_session_manager()
        self.service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=self.task,
            desired_count=1,
            # The old task ends before the new one starts: two would both launch a round's actors.
            min_healthy_percent=0,
            max_healthy_percent=100,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            vpc_subnets=network.near_the_cache,
            assign_public_ip=True,
            security_groups=[network.scaler],
            enable_execute_command=port_forwarding,
        )
        # Neither started before there is a way out nor cut off from it while it is being ended.
        self.service.node.add_dependency(network.way_out())
        self.discovery = self._discovery(namespace)
        self.service.associate_cloud_map_service(
            service=self.discovery, container=self._container, container_port=PORT_NUMBER
        )

    def _learner_tasks(
        self, config: NitroConfig, network: Network, learners: LearnerTasks
    ) -> dict[str, str]:
        """Return the settings by which the scaler runs the tasks of learners."""

        def listed(where: ec2.SubnetSelection) -> str:
            subnets = network.vpc.select_subnets(
                subnets=where.subnets, subnet_type=where.subnet_type
            )
            return str(Stack.of(self).to_json_string(subnets.subnet_ids))

        settings = {
            "NITRO_ECS_SUBNETS": listed(network.near_the_cache),
            "NITRO_ECS_SECURITY_GROUP": network.learner.security_group_id,
            "NITRO_MOST_CPU_LEARNERS": str(config.most_cpu_learners),
        }
        if learners.gpu_provider is None:
            return settings
        return settings | {
            "NITRO_ECS_GPU_SUBNETS": listed(PUBLIC),
            "NITRO_ECS_GPU_PROVIDER": learners.gpu_provider,
            "NITRO_MOST_GPU_LEARNERS": str(config.most_gpu_learners),
        }

    def _task(self, config: NitroConfig) -> ecs.FargateTaskDefinition:
        return ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=config.scaler_cpu,
            memory_limit_mib=config.scaler_memory_mb,
            runtime_platform=fargate_platform(config),
        )

    def _add_container(
        self, config: NitroConfig, environment: dict[str, str], stores: Stores
    ) -> ecs.ContainerDefinition:
        return self.task.add_container(
            "Scaler",
            container_name=_NAME,
            image=service_image("services/scaler/Dockerfile", config=config),
            environment=environment,
            secrets={
                "NITRO_TOKEN": ecs.Secret.from_secrets_manager(stores.token),
                "NITRO_VIEWER_TOKEN": ecs.Secret.from_secrets_manager(stores.viewer_token),
            },
            port_mappings=[ecs.PortMapping(container_port=PORT_NUMBER)],
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=locked_down(self),
            health_check=pulse(PORT_NUMBER, start_s=30),
            logging=log_to(self.log_group, _NAME),
            stop_timeout=Duration.seconds(60),
        )

    def _discovery(
        self, namespace: servicediscovery.IPrivateDnsNamespace
    ) -> servicediscovery.Service:
        """Return the name: an address for the learner, and a port for API Gateway to read."""
        service = servicediscovery.Service(
            self,
            "Discovery",
            namespace=namespace,
            name=_NAME,
            dns_record_type=servicediscovery.DnsRecordType.SRV,
            dns_ttl=Duration.seconds(_TTL_S),
            custom_health_check=servicediscovery.HealthCheckCustomConfig(failure_threshold=1),
        )
        resource = service.node.default_child
        assert isinstance(resource, servicediscovery.CfnService)
        records = [{"Type": kind, "TTL": _TTL_S} for kind in ("A", "SRV")]
        resource.add_property_override("DnsConfig.DnsRecords", records)
        return service

    def _make_room_for_session_manager(self) -> None:
        for number, folder in enumerate(_SSM_FOLDERS):
            self.task.add_volume(name=f"ssm-{number}")
            self._container.add_mount_points(
                ecs.MountPoint(
                    source_volume=f"ssm-{number}", container_path=folder, read_only=False
                )
            )


def scaler_url(namespace: servicediscovery.IPrivateDnsNamespace) -> str:
    """Return the address the learner finds the scaler at."""
    return f"http://{_NAME}.{namespace.namespace_name}:{PORT_NUMBER}"


def _actor_variables(config: NitroConfig) -> dict[str, str]:
    cap = config.actor_concurrency
    return {
        "NITRO_LAMBDA_QUALIFIER": ALIAS,
        "NITRO_LAMBDA_MEMORY_MB": str(config.actor_memory_mb),
        "NITRO_LAMBDA_TIMEOUT_S": str(config.actor_timeout_s),
        "NITRO_LAMBDA_READ_TIMEOUT_S": str(config.actor_timeout_s + 15),
        **({} if cap is None else {"NITRO_LAMBDA_RESERVED_CONCURRENCY": str(cap)}),
        "NITRO_COLD_STARTS_PER_S": str(_COLD_STARTS_PER_S),
        "NITRO_PROVISIONED_CONCURRENCY": str(config.provisioned_concurrency),
    }


def _limits_and_prices(config: NitroConfig, learner_types: tuple[str, ...]) -> dict[str, str]:
    prices = {"NITRO_PRICE_TABLE": config.price_table.name}
    if config.prices is not None:
        prices = {"NITRO_PRICES": config.prices.model_dump_json()}
    # The dearest type that may come: a budget must hold whichever does. Types that AWS no longer
    # starts count only where the list has no other.
    possible = [kind for kind in learner_types if kind not in RETIRED_INSTANCES]
    dearest = max(possible or learner_types, key=config.price_table.learner_usd_per_s, default=None)
    return {
        "NITRO_LONGEST_JOB_S": str(Duration.hours(config.longest_job_hours).to_seconds()),
        "NITRO_LEARNER_WAIT_S": str(Duration.minutes(config.learner_wait_minutes).to_seconds()),
        "NITRO_LEDGER_CLOCK": "wall",
        **prices,
        **({} if dearest is None else {"NITRO_LEARNER_INSTANCE": dearest}),
        "NITRO_CPU_LEARNER_VCPU": str(config.cpu_learner_vcpu),
        "NITRO_CPU_LEARNER_MEMORY_GB": f"{config.cpu_learner_memory_mb / 1024:g}",
        "NITRO_GPU_LEARNER_MEMORY_GB": f"{config.learner_memory_mb / 1024:g}",
        "NITRO_CACHE_NODE": config.cache_node_type,
        "NITRO_CACHE_ENGINE": config.cache_engine,
        "NITRO_SCALER_VCPU": f"{config.scaler_cpu / 1024:g}",
        "NITRO_SCALER_MEMORY_GB": f"{config.scaler_memory_mb / 1024:g}",
    }
