"""The machine below the learner: none or one, the first GPU type of the list that can be had."""

import jsii
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk.network import way_out
from shared.deployment.config import NitroConfig


class GpuCapacity(Construct):
    """Launch template, group of at most one machine, and the capacity provider that runs it."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        instance_types: tuple[str, ...],
        cluster: ecs.Cluster,
        subnets: ec2.SubnetSelection,
        security_group: ec2.ISecurityGroup,
    ) -> None:
        super().__init__(scope, id)
        self.host_role = iam.Role(
            self, "HostRole", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")
        )
        group = autoscaling.AutoScalingGroup(
            self,
            "Group",
            vpc=cluster.vpc,
            vpc_subnets=subnets,
            min_capacity=0,
            max_capacity=1,
            mixed_instances_policy=autoscaling.MixedInstancesPolicy(
                launch_template=self._template(config, instance_types[0], security_group),
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
        group.node.add_dependency(way_out(cluster.vpc, subnets))
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

    def _template(
        self, config: NitroConfig, instance_type: str, security_group: ec2.ISecurityGroup
    ) -> ec2.LaunchTemplate:
        return ec2.LaunchTemplate(
            self,
            "Template",
            machine_image=_machine_image(config),
            instance_type=ec2.InstanceType(instance_type),
            role=self.host_role,
            user_data=_user_data(),
            security_group=security_group,
            # Pulls images and talks to ECS; nothing may connect to it.
            associate_public_ip_address=True,
            require_imdsv2=True,
            http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
            http_put_response_hop_limit=1,
            block_devices=[_disk(config.learner_disk_gb)],
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


def _machine_image(config: NitroConfig) -> ec2.IMachineImage:
    if config.learner_ami is not None:
        return _FixedImage(config.learner_ami)
    return ecs.EcsOptimizedImage.amazon_linux2023(ecs.AmiHardwareType.GPU)


def _user_data() -> ec2.UserData:
    user_data = ec2.UserData.for_linux()
    user_data.add_commands(
        "echo ECS_ENABLE_GPU_SUPPORT=true >> /etc/ecs/ecs.config",
        # The learner has a role of its own and no business with the machine's.
        "echo ECS_AWSVPC_BLOCK_IMDS=true >> /etc/ecs/ecs.config",
    )
    return user_data


def _disk(size_gb: int) -> ec2.BlockDevice:
    return ec2.BlockDevice(
        device_name="/dev/xvda",
        volume=ec2.BlockDeviceVolume.ebs(
            size_gb,
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            encrypted=True,
            delete_on_termination=True,
        ),
    )
