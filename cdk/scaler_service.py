"""The scaler: one small Fargate task, always on, found by name."""

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_servicediscovery as servicediscovery
from constructs import Construct

from cdk.container import USER, locked_down, log_to, pulse
from cdk.image import service_image
from cdk.log_group import nitro_log_group
from cdk.network import way_out
from shared.deployment.config import NitroConfig

PORT_NUMBER = 8080
PORT = ec2.Port.tcp(PORT_NUMBER)
_NAME = "scaler"
_TTL_S = 10
_SSM_FOLDERS = ("/var/lib/amazon", "/var/log/amazon")
"""Where Session Manager's agent writes; the rest of the file system stays read-only."""


class ScalerService(Construct):
    """Task, service and name."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        cluster: ecs.ICluster,
        subnets: ec2.SubnetSelection,
        security_group: ec2.ISecurityGroup,
        namespace: servicediscovery.IPrivateDnsNamespace,
        environment: dict[str, str],
        token: secretsmanager.ISecret,
    ) -> None:
        super().__init__(scope, id)
        self.task = self._task(config)
        self._container = self._add_container(config=config, environment=environment, token=token)
        port_forwarding = config.endpoint == "none"
        if port_forwarding:
            self._make_room_for_session_manager()
        self.service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=self.task,
            desired_count=1,
            # The old one ends before the new one starts: two would both launch a round's actors.
            min_healthy_percent=0,
            max_healthy_percent=100,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            vpc_subnets=subnets,
            assign_public_ip=True,
            security_groups=[security_group],
            enable_execute_command=port_forwarding,
        )
        # Neither started before there is a way out nor cut off from it while it is being ended.
        self.service.node.add_dependency(way_out(cluster.vpc, subnets))
        self.discovery = self._discovery(namespace)
        self.service.associate_cloud_map_service(
            service=self.discovery, container=self._container, container_port=PORT_NUMBER
        )

    def _task(self, config: NitroConfig) -> ecs.FargateTaskDefinition:
        return ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=config.scaler_cpu,
            memory_limit_mib=config.scaler_memory_mb,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.X86_64,
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
            ),
        )

    def _add_container(
        self, *, config: NitroConfig, environment: dict[str, str], token: secretsmanager.ISecret
    ) -> ecs.ContainerDefinition:
        return self.task.add_container(
            "Scaler",
            container_name=_NAME,
            image=service_image("services/scaler/Dockerfile", config=config),
            environment=environment,
            secrets={"NITRO_TOKEN": ecs.Secret.from_secrets_manager(token)},
            port_mappings=[ecs.PortMapping(container_port=PORT_NUMBER)],
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=locked_down(self),
            health_check=pulse(PORT_NUMBER, start_s=30),
            logging=log_to(nitro_log_group(self, "Logs", config=config), _NAME),
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
