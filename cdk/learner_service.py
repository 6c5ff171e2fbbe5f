"""The learner: one GPU task, asked for by the scaler while there is work and by nobody else."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from cdk.containers import USER, locked_down, log_to, pulse, service_image
from cdk.network import PUBLIC, Network
from cdk.stores import Stores, nitro_log_group
from cdk.trajectory_cache import TrajectoryCache
from shared.deployment.config import NitroConfig
from shared.deployment.machines import torch_build

_PORT = 8081
_SCRATCH = "/tmp"
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
        network: Network,
        stores: Stores,
        cache: TrajectoryCache,
        scaler_url: str,
    ) -> None:
        super().__init__(scope, id)
        # A task in awsvpc mode on EC2 has no public address: it reaches the VPC and, through the
        # gateway endpoint, S3; images, logs and the token are the machine's business.
        self.task = ecs.Ec2TaskDefinition(self, "Task", network_mode=ecs.NetworkMode.AWS_VPC)
        environment = {
            # ECS tells it to tasks on Fargate only. Without it the SDK would look for the bucket in
            # us-east-1, where the task has no way to.
            "AWS_REGION": Stack.of(self).region,
            "NITRO_SCALER_URL": scaler_url,
            "NITRO_ARTIFACTS": stores.artifacts_url,
            "NITRO_RUNS_DIR": f"{_SCRATCH}/runs",
            # A missing driver must fail the task, not turn a GPU hour into a CPU hour.
            "NITRO_DEVICE": "cuda",
            **cache.environment("learner"),
        }
        self._add_container(config, instance_types, environment, stores)
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
            vpc_subnets=PUBLIC,
            security_groups=[network.learner],
        )
        # The cluster knows the capacity provider before the service asks for it, and forgets it
        # after the service is gone; CDK orders neither.
        self.service.node.add_dependency(cluster)

    def _add_container(
        self,
        config: NitroConfig,
        instance_types: tuple[str, ...],
        environment: dict[str, str],
        stores: Stores,
    ) -> None:
        torch = {
            "TORCH_BUILD": config.build_args.get("TORCH_BUILD", torch_build(instance_types)),
            "TORCH_INDEX_URL": config.build_args.get("TORCH_INDEX_URL", ""),
        }
        linux = locked_down(self)
        linux.add_tmpfs(
            ecs.Tmpfs(
                container_path=_SCRATCH,
                size=_SCRATCH_MB,
                mount_options=[ecs.TmpfsMountOption.RW, ecs.TmpfsMountOption.NOSUID],
            )
        )
        self.task.add_container(
            "Learner",
            container_name="learner",
            image=service_image("services/learner/Dockerfile", config=config, build_args=torch),
            environment=environment,
            secrets={"NITRO_TOKEN": ecs.Secret.from_secrets_manager(stores.token)},
            gpu_count=1,  # the machine has one, the task insists on it
            memory_limit_mib=config.learner_memory_mb,
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=linux,
            health_check=pulse(_PORT, start_s=120),
            logging=log_to(nitro_log_group(self, "Logs", config=config), "learner"),
            # Time to finish the update under way and store a checkpoint.
            stop_timeout=Duration.seconds(120),
        )
