"""The machines of GPU learners: one each, of the first available type."""

import jsii
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk.network import PUBLIC, Network
from shared.deployment.config import NitroConfig

_DISK_MB_PER_S = 500
"""The image has 3 GB packed, and more unpacked: by default gp3 would take minutes to write that."""


class GpuCapacity(Construct):
    """Launch template, group of machines, and the capacity provider that runs them."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        instance_types: tuple[str, ...],
        cluster: ecs.Cluster,
        network: Network,
    ) -> None:
        super().__init__(scope, id)
        self.security_group = network.learner_host()
        self.host_role = iam.Role(
            self, "HostRole", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")
        )
        group = autoscaling.AutoScalingGroup(
            self,
            "Group",
            vpc=network.vpc,
            vpc_subnets=PUBLIC,
            min_capacity=0,
            max_capacity=config.most_gpu_learners,
            mixed_instances_policy=autoscaling.MixedInstancesPolicy(
                launch_template=self._template(config, instance_types[0]),
                launch_template_overrides=[
                    autoscaling.LaunchTemplateOverrides(instance_type=ec2.InstanceType(kind))
                    for kind in instance_types
                ],
                instances_distribution=autoscaling.InstancesDistribution(
                    on_demand_allocation_strategy=(
                        autoscaling.OnDemandAllocationStrategy.PRIORITIZED
                    ),
                    on_demand_percentage_above_base_capacity=100,
                ),
            ),
        )
        # The gateway cannot be detached while a machine holds a public address.
        group.node.add_dependency(network.way_out())
        self.provider = ecs.AsgCapacityProvider(
            self,
            "Provider",
            auto_scaling_group=group,
            enable_managed_scaling=True,
            # A machine without a task has nothing worth protecting.
            enable_managed_termination_protection=False,
            enable_managed_draining=True,
            target_capacity_percent=100,
        )
        cluster.add_asg_capacity_provider(self.provider)

    def _template(self, config: NitroConfig, instance_type: str) -> ec2.LaunchTemplate:
        image: ec2.IMachineImage = ecs.EcsOptimizedImage.amazon_linux2023(ecs.AmiHardwareType.GPU)
        if config.learner_ami is not None:
            image = _FixedImage(config.learner_ami)
        user_data = ec2.UserData.for_linux()
        user_data.add_commands(
            "echo ECS_ENABLE_GPU_SUPPORT=true >> /etc/ecs/ecs.config",
            # The learner has a role of its own and no business with the machine's.
            "echo ECS_AWSVPC_BLOCK_IMDS=true >> /etc/ecs/ecs.config",
        )
        disk = ec2.BlockDeviceVolume.ebs(
            config.learner_disk_gb,
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            throughput=_DISK_MB_PER_S,
            encrypted=True,
            delete_on_termination=True,
        )
        return ec2.LaunchTemplate(
            self,
            "Template",
            machine_image=image,
            instance_type=ec2.InstanceType(instance_type),
            role=self.host_role,
            user_data=user_data,
            security_group=self.security_group,
            # Pulls images and talks to ECS; nothing may connect to it.
            associate_public_ip_address=True,
            require_imdsv2=True,
            http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
            http_put_response_hop_limit=1,
            block_devices=[ec2.BlockDevice(device_name="/dev/xvda", volume=disk)],
        )


@jsii.implements(ec2.IMachineImage)
class _FixedImage:
    """A machine image by id, in whatever region the stack goes to."""

    def __init__(self, image_id: str) -> None:
        self._image_id = image_id

    def get_image(self, scope: Construct) -> ec2.MachineImageConfig:
        return ec2.MachineImageConfig(
            image_id=self._image_id,
            os_type=ec2.OperatingSystemType.LINUX,
            user_data=ec2.UserData.for_linux(),
        )
