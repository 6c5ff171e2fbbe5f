"""The learners: a task of a few cores and a GPU task, run only by the scaler.

There is no service: the scaler runs one task for each job, of the family's newest revision. Both
kinds have one role, one log and the same lockdown, those of the task of a few cores: a deployment
may go without the other one. Only their machines differ.
"""

from aws_cdk import Duration, Stack
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from cdk.containers import USER, fargate_platform, locked_down, log_to, pulse, service_image
from cdk.stores import Stores, nitro_log_group
from cdk.trajectory_cache import TrajectoryCache
from shared.contracts.learner_kind import MachineKind
from shared.deployment.config import NitroConfig
from shared.deployment.machines import num_gpus, torch_build

_PORT = 8081
_SCRATCH = "/tmp"
"""The container's tmpfs: the only writable place of the GPU learner."""
_SCRATCH_MB = 4096
_VOLUME = "/var/lib/nitro/runs"
"""The image's volume, which belongs to its user: Fargate, which has no tmpfs, keeps it so."""
_SHARED_MB = 1024
"""What ranks on several GPUs exchange gradients through where the GPUs have no way to each other;
containers have 64 MB unless told otherwise."""
_STOP = Duration.seconds(120)
"""Time to finish the current update and store a checkpoint."""


def family(config: NitroConfig, kind: MachineKind) -> str:
    """Return the family of the tasks of learners of a kind."""
    return f"{config.name}-{kind}-learner"


class CpuLearner(Construct):
    """The learner on Fargate."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        stores: Stores,
        cache: TrajectoryCache,
        scaler_url: str,
    ) -> None:
        super().__init__(scope, id)
        self.task = ecs.FargateTaskDefinition(
            self,
            "Task",
            family=family(config, "cpu"),
            cpu=1024 * config.cpu_learner_vcpu,
            memory_limit_mib=config.cpu_learner_memory_mb,
            runtime_platform=fargate_platform(config),
        )
        self.log_group = nitro_log_group(self, "Logs", config=config)
        self.environment = {
            # ECS tells it to tasks on Fargate only. Without it the SDK would look for the bucket in
            # us-east-1, where a task on a machine has no way to.
            "AWS_REGION": Stack.of(self).region,
            "NITRO_SCALER_URL": scaler_url,
            "NITRO_ARTIFACTS": stores.artifacts_url,
            **cache.environment("learner"),
        }
        self._add_container(config, stores)

    def _add_container(self, config: NitroConfig, stores: Stores) -> None:
        self.task.add_volume(name="scratch")
        container = self.task.add_container(
            "Learner",
            container_name="learner",
            image=_image(config, "cpu"),
            environment={
                **self.environment,
                "NITRO_LEARNER_KIND": "cpu",
                "NITRO_DEVICE": "cpu",
                "HOME": _VOLUME,
                "TMPDIR": _VOLUME,
            },
            secrets={"NITRO_TOKEN": ecs.Secret.from_secrets_manager(stores.token)},
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=locked_down(self),
            health_check=pulse(_PORT, start_s=120),
            logging=log_to(self.log_group, "cpu-learner"),
            stop_timeout=_STOP,
        )
        container.add_mount_points(
            ecs.MountPoint(source_volume="scratch", container_path=_VOLUME, read_only=False)
        )


class GpuLearner(Construct):
    """The learner on a GPU."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        instance_types: tuple[str, ...],
        stores: Stores,
        cpu_learner: CpuLearner,
    ) -> None:
        super().__init__(scope, id)
        # A task in awsvpc mode on EC2 has no public address: it reaches the VPC and, through the
        # gateway endpoint, S3; images, logs and the token are the machine's business.
        self.task = ecs.Ec2TaskDefinition(
            self,
            "Task",
            family=family(config, "gpu"),
            network_mode=ecs.NetworkMode.AWS_VPC,
            task_role=cpu_learner.task.task_role,
            execution_role=cpu_learner.task.obtain_execution_role(),
        )
        self._add_container(config, instance_types, stores, cpu_learner)

    def _add_container(
        self,
        config: NitroConfig,
        instance_types: tuple[str, ...],
        stores: Stores,
        cpu_learner: CpuLearner,
    ) -> None:
        torch = config.build_args.get("TORCH_BUILD", torch_build(instance_types))
        gpus = num_gpus(instance_types[0])  # all of a list have as many
        linux = locked_down(self, shared_memory_mb=_SHARED_MB if gpus > 1 else None)
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
            image=_image(config, torch, on_gpu=True),
            environment={
                **cpu_learner.environment,
                "NITRO_LEARNER_KIND": "gpu",
                "NITRO_RUNS_DIR": f"{_SCRATCH}/runs",
                # A missing driver must fail the task instead of using the CPU at a GPU's price.
                "NITRO_DEVICE": "cuda",
                **({"NITRO_LEARNER_RANKS": str(gpus)} if gpus > 1 else {}),
            },
            secrets={"NITRO_TOKEN": ecs.Secret.from_secrets_manager(stores.token)},
            gpu_count=gpus,  # all that the machine has: the task insists on them
            memory_limit_mib=config.learner_memory_mb,
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=linux,
            health_check=pulse(_PORT, start_s=120),
            logging=log_to(cpu_learner.log_group, "learner"),
            stop_timeout=_STOP,
        )


def _image(config: NitroConfig, torch: str, *, on_gpu: bool = False) -> ecs.ContainerImage:
    """Return the learner's image with a build of torch.

    The index that is configured is that of the configured build.
    """
    own_index = config.build_args.get("TORCH_BUILD", torch) == torch
    index = config.build_args.get("TORCH_INDEX_URL", "") if own_index else ""
    arguments = {"TORCH_BUILD": torch, "TORCH_INDEX_URL": index}
    return service_image(
        "services/learner/Dockerfile",
        config=config,
        build_args=arguments,
        on_gpu=on_gpu,
        runs_actors=True,
    )
