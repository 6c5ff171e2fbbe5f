"""The learner: one GPU task, asked for by the scaler while there is work and by nobody else."""

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from cdk.container import USER, locked_down, log_to, pulse
from cdk.image import service_image
from cdk.log_group import nitro_log_group
from shared.deployment.config import NitroConfig
from shared.deployment.machines import torch_build

_PORT = 8081
SCRATCH = "/tmp"
"""A tmpfs of the container's own: the one place it can write to."""
_SCRATCH_MB = 4096


class LearnerService(Construct):
    """Task and service, with a desired count of none."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        instance_types: tuple[str, ...],
        cluster: ecs.ICluster,
        provider: ecs.AsgCapacityProvider,
        subnets: ec2.SubnetSelection,
        security_group: ec2.ISecurityGroup,
        environment: dict[str, str],
        token: secretsmanager.ISecret,
    ) -> None:
        super().__init__(scope, id)
        # A task in awsvpc mode on EC2 has no public address: it reaches the VPC and, through the
        # gateway endpoint, S3; images, logs and the token are the machine's business.
        self.task = ecs.Ec2TaskDefinition(self, "Task", network_mode=ecs.NetworkMode.AWS_VPC)
        self._add_container(
            config=config,
            # The machine has a GPU, the task insists on it.
            torch=_torch(config, instance_types),
            environment=environment,
            token=token,
        )
        self.service = ecs.Ec2Service(
            self,
            "Service",
            cluster=cluster,
            task_definition=self.task,
            desired_count=0,
            # One GPU, one learner: the old one ends before the new one starts.
            min_healthy_percent=0,
            max_healthy_percent=100,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            capacity_provider_strategies=[
                ecs.CapacityProviderStrategy(
                    capacity_provider=provider.capacity_provider_name, weight=1
                )
            ],
            vpc_subnets=subnets,
            security_groups=[security_group],
        )
        # The cluster knows the capacity provider before the service asks for it, and forgets it
        # after the service is gone; CDK orders neither.
        self.service.node.add_dependency(cluster)

    def _add_container(
        self,
        *,
        config: NitroConfig,
        torch: dict[str, str],
        environment: dict[str, str],
        token: secretsmanager.ISecret,
    ) -> None:
        linux = locked_down(self)
        linux.add_tmpfs(
            ecs.Tmpfs(
                container_path=SCRATCH,
                size=_SCRATCH_MB,
                mount_options=[ecs.TmpfsMountOption.RW, ecs.TmpfsMountOption.NOSUID],
            )
        )
        self.task.add_container(
            "Learner",
            container_name="learner",
            image=service_image("services/learner/Dockerfile", config=config, build_args=torch),
            environment=environment,
            secrets={"NITRO_TOKEN": ecs.Secret.from_secrets_manager(token)},
            gpu_count=1,
            memory_limit_mib=config.learner_memory_mb,
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=linux,
            health_check=pulse(_PORT, start_s=120),
            logging=log_to(nitro_log_group(self, "Logs", config=config), "learner"),
            # Time to finish the update under way and store a checkpoint.
            stop_timeout=Duration.seconds(120),
        )


def _torch(config: NitroConfig, instance_types: tuple[str, ...]) -> dict[str, str]:
    """Return the build arguments that say which torch, and where it is."""
    return {
        "TORCH_BUILD": config.build_args.get("TORCH_BUILD", torch_build(instance_types)),
        "TORCH_INDEX_URL": config.build_args.get("TORCH_INDEX_URL", ""),
    }
