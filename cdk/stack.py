"""Nitro on AWS: the resources, then permissions, then allowed connections.

Each grant and each security-group rule is one line in this file.
"""

from aws_cdk import Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_servicediscovery as servicediscovery
from constructs import Construct

from cdk import scaler_service, trajectory_cache
from cdk.api_endpoint import ApiEndpoint
from cdk.functions import ActorFunction, DeadManSwitch, GradientFunction
from cdk.gpu_capacity import GpuCapacity
from cdk.learner_task import CpuLearner, GpuLearner, family
from cdk.network import HTTPS, Network
from cdk.observability import Observability
from cdk.outputs import write_outputs
from cdk.scaler_service import LearnerTasks, ScalerService, scaler_url
from cdk.stores import RUNS_PREFIX, Stores
from cdk.trajectory_cache import TrajectoryCache
from shared.contracts.learner_kind import MachineKind
from shared.deployment.config import NitroConfig
from shared.deployment.zones import NUM_ZONES

ANYWHERE = ec2.Peer.any_ipv4()


class NitroStack(Stack):
    """One deployment of Nitro."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        learner_types: tuple[str, ...],
        zones: tuple[str, ...] | None,
        env: Environment | None = None,
    ) -> None:
        super().__init__(
            scope,
            id,
            env=env,
            description="Nitro: a learner for each job, with serverless actors on demand",
        )
        self._config = config
        self._zones = zones
        network = self._network = Network(self, "Network", config=config)
        self.stores = Stores(self, "Stores", config=config)
        self._cache = TrajectoryCache(self, "TrajectoryCache", config=config, network=network)
        self._actor = ActorFunction(
            self, "Actor", config=config, network=network, cache=self._cache
        )
        self._cluster = ecs.Cluster(
            self,
            "Cluster",
            vpc=network.vpc,
            # Sessions only forward a port; to log them, every log group would have to be open.
            execute_command_configuration=ecs.ExecuteCommandConfiguration(
                logging=ecs.ExecuteCommandLogging.NONE
            ),
        )
        self._gradient = GradientFunction(
            self, "Gradient", config=config, network=self._network, cache=self._cache
        )
        self._add_services(learner_types)
        self._dead_man = DeadManSwitch(
            self,
            "DeadMan",
            config=config,
            stores=self.stores,
            actor=self._actor,
            cluster=self._cluster,
            families=self.families,
        )
        self._grant()
        self._connect()
        Observability(
            self,
            "Observability",
            config=config,
            actor=self._actor.alias,
            dead_man=self._dead_man,
            service=self._scaler.service,
        )
        write_outputs(
            self,
            url=self._add_endpoint(),
            signed=config.endpoint == "iam",
            cluster=self._cluster,
            alias=self._actor.alias,
            stores=self.stores,
            scaler=self._scaler,
        )

    @property
    def availability_zones(self) -> list[str]:
        """Zones, asked of CloudFormation; CDK would look them up and need credentials to write."""
        if self._zones is not None:
            return list(self._zones)
        return [Fn.select(zone, Fn.get_azs()) for zone in range(NUM_ZONES)]

    def _grant(self) -> None:
        """Grant permissions."""
        scaler = self._scaler.task.task_role
        learner = self._cpu_learner.task.task_role  # of both learners
        switch = self._dead_man.role
        groups = (self._cpu_learner.log_group, self._scaler.log_group, self._actor.log_group)
        logs = [group.log_group_arn for group in groups]
        switch_log = [self._dead_man.log_group.log_group_arn]
        alias = [self._actor.alias.function_arn]
        table = [self.stores.jobs.table_arn]
        bucket = [self.stores.runs.bucket_arn]
        runs = [self.stores.runs.arn_for_objects(f"{RUNS_PREFIX}/*")]
        definitions = [self._arn("task-definition", f"{name}:*") for name in self.families.values()]
        tasks = [self._arn("task", f"{self._cluster.cluster_name}/*")]
        cluster = self._cluster.cluster_arn
        # Of both kinds of learner.
        roles = [learner.role_arn, self._cpu_learner.task.obtain_execution_role().role_arn]

        for made in (self._actor, self._gradient):
            own, log = made.role, [made.log_group.log_group_arn]
            self._cache.grant_connect(own, "actor")
            _allow(own, log, "logs:CreateLogStream")
            _allow(own, log, "logs:PutLogEvents")
            _allow(own, ["*"], "ec2:CreateNetworkInterface")  # Lambda's work in the VPC; one of
            _allow(own, ["*"], "ec2:DescribeNetworkInterfaces")  # these has no name before it is
            _allow(own, ["*"], "ec2:DescribeSubnets")
            _allow(own, ["*"], "ec2:DeleteNetworkInterface")
            _allow(own, ["*"], "ec2:AssignPrivateIpAddresses")
            _allow(own, ["*"], "ec2:UnassignPrivateIpAddresses")

        self._cache.grant_connect(scaler, "scaler")
        _allow(scaler, alias, "lambda:InvokeFunction")
        _allow(scaler, [self._gradient.alias.function_arn], "lambda:InvokeFunction")
        _allow(scaler, alias, "lambda:GetProvisionedConcurrencyConfig")
        _allow(scaler, alias, "lambda:PutProvisionedConcurrencyConfig")
        _allow(scaler, alias, "lambda:DeleteProvisionedConcurrencyConfig")
        _allow(scaler, ["*"], "lambda:GetAccountSettings")  # knows no resource
        _allow(scaler, definitions, "ecs:RunTask", cluster=cluster)
        _allow(scaler, roles, "iam:PassRole", to="ecs-tasks.amazonaws.com")
        _allow(scaler, ["*"], "ecs:ListTasks", cluster=cluster)  # by family, which is no resource
        _allow(scaler, tasks, "ecs:DescribeTasks", cluster=cluster)
        _allow(scaler, tasks, "ecs:StopTask", cluster=cluster)
        _allow(scaler, table, "dynamodb:GetItem")
        _allow(scaler, table, "dynamodb:PutItem")
        _allow(scaler, table, "dynamodb:DeleteItem")
        _allow(scaler, table, "dynamodb:ConditionCheckItem")
        _allow(scaler, table, "dynamodb:Query")
        _allow(scaler, bucket, "s3:ListBucket", prefix=RUNS_PREFIX)
        _allow(scaler, runs, "s3:GetObject")  # for links that it signs
        _allow(scaler, runs, "s3:DeleteObject")
        _allow(scaler, logs, "logs:FilterLogEvents")

        self._cache.grant_connect(learner, "learner")
        _allow(learner, bucket, "s3:ListBucket", prefix=RUNS_PREFIX)
        _allow(learner, runs, "s3:GetObject")
        _allow(learner, runs, "s3:PutObject")
        _allow(learner, runs, "s3:DeleteObject")

        _allow(switch, alias, "lambda:GetProvisionedConcurrencyConfig")
        _allow(switch, alias, "lambda:DeleteProvisionedConcurrencyConfig")
        _allow(switch, ["*"], "ecs:ListTasks", cluster=cluster)
        _allow(switch, tasks, "ecs:DescribeTasks", cluster=cluster)
        _allow(switch, tasks, "ecs:StopTask", cluster=cluster)
        _allow(switch, table, "dynamodb:GetItem")
        _allow(switch, switch_log, "logs:CreateLogStream")
        _allow(switch, switch_log, "logs:PutLogEvents")

    def _arn(self, kind: str, name: str) -> str:
        """Return the ARN of something in ECS."""
        return self.format_arn(service="ecs", resource=kind, resource_name=name)

    def _connect(self) -> None:
        """Allow connections; each line opens the way out and the way in."""
        net = self._network
        cache, scaler = trajectory_cache.PORT, scaler_service.PORT

        net.actors.connections.allow_to(net.cache, cache, "Actors store trajectories")
        net.scaler.connections.allow_to(net.cache, cache, "Scaler announces lost actors")
        net.learner.connections.allow_to(net.cache, cache, "Learner collects trajectories")
        net.learner.connections.allow_to(net.scaler, scaler, "Learner asks for rounds")
        if self._config.endpoint != "none":
            net.api_link.connections.allow_to(net.scaler, scaler, "Users reach the API")

        net.scaler.add_egress_rule(ANYWHERE, HTTPS, "Scaler calls Lambda, ECS, DynamoDB, S3")
        net.learner.add_egress_rule(
            ANYWHERE, HTTPS, "Learner calls S3; on Fargate AWS pulls through it"
        )
        if self._capacity is not None:
            self._capacity.security_group.add_egress_rule(
                ANYWHERE, HTTPS, "Machine pulls images and calls ECS"
            )

    def _add_services(self, learner_types: tuple[str, ...]) -> None:
        """Add the learners and the scaler."""
        namespace = servicediscovery.PrivateDnsNamespace(
            self, "Namespace", name=f"{self._config.name}.internal", vpc=self._network.vpc
        )
        self._cpu_learner = CpuLearner(
            self,
            "CpuLearner",
            config=self._config,
            stores=self.stores,
            cache=self._cache,
            scaler_url=scaler_url(namespace),
        )
        kinds: tuple[MachineKind, ...] = ("gpu", "cpu") if learner_types else ("cpu",)
        self.families = {kind: family(self._config, kind) for kind in kinds}
        self._capacity = self._add_gpu_learner(learner_types) if learner_types else None
        # Those on Fargate, on demand or Spot, are the cluster's beside ours.
        self._cluster.enable_fargate_capacity_providers()
        provider = None if self._capacity is None else self._capacity.provider
        self._scaler = ScalerService(
            self,
            "Scaler",
            config=self._config,
            learner_types=learner_types,
            cluster=self._cluster,
            network=self._network,
            namespace=namespace,
            stores=self.stores,
            cache=self._cache,
            actor=self._actor,
            gradient=self._gradient,
            learners=LearnerTasks(
                families=self.families,
                gpu_provider=None if provider is None else provider.capacity_provider_name,
            ),
            learner_log=self._cpu_learner.log_group,
        )

    def _add_gpu_learner(self, learner_types: tuple[str, ...]) -> GpuCapacity:
        """Add the learner with a GPU, and return the machine below it."""
        capacity = GpuCapacity(
            self,
            "GpuCapacity",
            config=self._config,
            instance_types=learner_types,
            cluster=self._cluster,
            network=self._network,
        )
        GpuLearner(
            self,
            "Learner",
            config=self._config,
            instance_types=learner_types,
            stores=self.stores,
            cpu_learner=self._cpu_learner,
        )
        return capacity

    def _add_endpoint(self) -> str | None:
        """Add the users' endpoint and return its address; None without one."""
        if self._config.endpoint == "none":
            return None
        return ApiEndpoint(
            self,
            "ApiEndpoint",
            config=self._config,
            network=self._network,
            service=self._scaler.discovery,
        ).url


def _allow(
    who: iam.IGrantable,
    resources: list[str],
    action: str,
    *,
    prefix: str | None = None,
    cluster: str | None = None,
    to: str | None = None,
) -> None:
    """Let a principal do one thing to some resources.

    Args:
        who: The principal.
        resources: What it may do it to.
        action: The one thing.
        prefix: For `s3:ListBucket`: below it only.
        cluster: For tasks of ECS: in that cluster only.
        to: For `iam:PassRole`: to that service only.
    """
    conditions: dict[str, dict[str, object]] = {}
    if prefix is not None:
        conditions["StringLike"] = {"s3:prefix": [f"{prefix}/*"]}
    if cluster is not None:
        conditions["ArnEquals"] = {"ecs:cluster": cluster}
    if to is not None:
        conditions["StringEquals"] = {"iam:PassedToService": to}
    iam.Grant.add_to_principal(
        grantee=who, actions=[action], resource_arns=resources, conditions=conditions or None
    )
