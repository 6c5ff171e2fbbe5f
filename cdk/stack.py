"""Everything Nitro is on AWS: the parts, then who may do what, then who may talk to whom.

Each grant and each security-group rule is a line of its own in here and nowhere else.
"""

from aws_cdk import Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_servicediscovery as servicediscovery
from constructs import Construct

from cdk import scaler_service, trajectory_cache
from cdk.actor_function import ActorFunction
from cdk.api_endpoint import ApiEndpoint
from cdk.dead_man import DeadManSwitch
from cdk.gpu_capacity import GpuCapacity
from cdk.learner_service import SCRATCH, LearnerService
from cdk.network import HTTPS, NUM_ZONES, PUBLIC, Network
from cdk.observability import Observability
from cdk.outputs import write_outputs
from cdk.roles import allow
from cdk.scaler_service import ScalerService, scaler_url
from cdk.service_environment import (
    dead_man_environment,
    learner_environment,
    scaler_environment,
)
from cdk.stores import RUNS_PREFIX, Stores
from cdk.trajectory_cache import TrajectoryCache
from shared.deployment.config import NitroConfig

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
        env: Environment | None = None,
    ) -> None:
        super().__init__(
            scope,
            id,
            env=env,
            description="Nitro: one GPU learner and as many serverless actors as a round is worth",
        )
        self._config = config
        self._learner_types = learner_types
        self._network = Network(self, "Network", config=config)
        self.stores = Stores(self, "Stores", config=config)
        self._cache = TrajectoryCache(
            self,
            "TrajectoryCache",
            config=config,
            subnet=self._network.isolated,
            security_group=self._network.cache,
        )
        self._actor = self._build_actor()
        self._cluster = ecs.Cluster(
            self,
            "Cluster",
            vpc=self._network.vpc,
            # Sessions only forward a port; to log them, every log group would have to be open.
            execute_command_configuration=ecs.ExecuteCommandConfiguration(
                logging=ecs.ExecuteCommandLogging.NONE
            ),
        )
        self._namespace = servicediscovery.PrivateDnsNamespace(
            self, "Namespace", name=f"{config.name}.internal", vpc=self._network.vpc
        )
        self._capacity = self._build_capacity()
        self._learner = self._build_learner()
        self._scaler = self._build_scaler()
        self._dead_man = self._build_dead_man()
        self._endpoint = self._build_endpoint()
        self._grant()
        self._connect()
        self._watch()
        self._tell()

    @property
    def availability_zones(self) -> list[str]:
        """Zones, asked of CloudFormation; CDK would look them up and need credentials to write."""
        if self._config.availability_zones is not None:
            return list(self._config.availability_zones)
        return [Fn.select(zone, Fn.get_azs()) for zone in range(NUM_ZONES)]

    def _grant(self) -> None:
        """Say who may do what."""
        actor = self._actor.role
        scaler = self._scaler.task.task_role
        learner = self._learner.task.task_role
        switch = self._dead_man.role
        actor_log = [self._actor.log_group.log_group_arn]
        switch_log = [self._dead_man.log_group.log_group_arn]
        alias = [self._actor.alias.function_arn]
        table = [self.stores.jobs.table_arn]
        queue = [f"{self.stores.jobs.table_arn}/index/queue"]
        bucket = [self.stores.runs.bucket_arn]
        runs = [self.stores.runs.arn_for_objects(f"{RUNS_PREFIX}/*")]
        service = [self._learner.service.service_arn]

        self._cache.grant_connect(actor, "actor")
        allow(actor, actor_log, "logs:CreateLogStream")
        allow(actor, actor_log, "logs:PutLogEvents")
        allow(actor, ["*"], "ec2:CreateNetworkInterface")  # Lambda's work in the VPC; an interface
        allow(actor, ["*"], "ec2:DescribeNetworkInterfaces")  # has no name before it exists
        allow(actor, ["*"], "ec2:DescribeSubnets")
        allow(actor, ["*"], "ec2:DeleteNetworkInterface")
        allow(actor, ["*"], "ec2:AssignPrivateIpAddresses")
        allow(actor, ["*"], "ec2:UnassignPrivateIpAddresses")

        self._cache.grant_connect(scaler, "scaler")
        allow(scaler, alias, "lambda:InvokeFunction")
        allow(scaler, alias, "lambda:GetProvisionedConcurrencyConfig")
        allow(scaler, alias, "lambda:PutProvisionedConcurrencyConfig")
        allow(scaler, alias, "lambda:DeleteProvisionedConcurrencyConfig")
        allow(scaler, ["*"], "lambda:GetAccountSettings")  # knows no resource
        allow(scaler, service, "ecs:DescribeServices")
        allow(scaler, service, "ecs:UpdateService")
        allow(scaler, ["*"], "ecs:ListTasks", cluster=self._cluster.cluster_arn)
        allow(scaler, table, "dynamodb:GetItem")
        allow(scaler, table, "dynamodb:BatchGetItem")
        allow(scaler, table, "dynamodb:PutItem")
        allow(scaler, table, "dynamodb:UpdateItem")
        allow(scaler, table, "dynamodb:DeleteItem")
        allow(scaler, table, "dynamodb:ConditionCheckItem")
        allow(scaler, table, "dynamodb:BatchWriteItem")
        allow(scaler, table + queue, "dynamodb:Query")
        allow(scaler, bucket, "s3:ListBucket", prefix=RUNS_PREFIX)
        allow(scaler, runs, "s3:DeleteObject")

        self._cache.grant_connect(learner, "learner")
        allow(learner, bucket, "s3:ListBucket", prefix=RUNS_PREFIX)
        allow(learner, runs, "s3:GetObject")
        allow(learner, runs, "s3:PutObject")
        allow(learner, runs, "s3:DeleteObject")

        allow(switch, alias, "lambda:GetProvisionedConcurrencyConfig")
        allow(switch, alias, "lambda:DeleteProvisionedConcurrencyConfig")
        allow(switch, service, "ecs:DescribeServices")
        allow(switch, service, "ecs:UpdateService")
        allow(switch, table, "dynamodb:GetItem")
        allow(switch, switch_log, "logs:CreateLogStream")
        allow(switch, switch_log, "logs:PutLogEvents")

    def _connect(self) -> None:
        """Say who may talk to whom; each line opens the way out there and the way in here."""
        net = self._network
        cache, scaler = trajectory_cache.PORT, scaler_service.PORT

        net.actors.connections.allow_to(net.cache, cache, "Actors store trajectories")
        net.scaler.connections.allow_to(net.cache, cache, "Scaler announces lost actors")
        net.learner.connections.allow_to(net.cache, cache, "Learner collects trajectories")
        net.learner.connections.allow_to(net.scaler, scaler, "Learner asks for rounds")
        if self._endpoint is not None:
            net.api_link.connections.allow_to(net.scaler, scaler, "Users reach the API")

        net.scaler.add_egress_rule(ANYWHERE, HTTPS, "Scaler calls Lambda, ECS, DynamoDB, S3")
        net.learner.add_egress_rule(ANYWHERE, HTTPS, "Learner calls S3; it has no other route")
        net.learner_host.add_egress_rule(ANYWHERE, HTTPS, "Machine pulls images and calls ECS")

    def _build_actor(self) -> ActorFunction:
        return ActorFunction(
            self,
            "Actor",
            config=self._config,
            vpc=self._network.vpc,
            subnet=self._network.isolated,
            security_group=self._network.actors,
            environment=self._cache.environment("actor"),
        )

    def _build_capacity(self) -> GpuCapacity:
        capacity = GpuCapacity(
            self,
            "GpuCapacity",
            config=self._config,
            instance_types=self._learner_types,
            cluster=self._cluster,
            subnets=PUBLIC,
            security_group=self._network.learner_host,
        )
        self._cluster.add_asg_capacity_provider(capacity.provider)
        return capacity

    def _build_learner(self) -> LearnerService:
        return LearnerService(
            self,
            "Learner",
            config=self._config,
            instance_types=self._learner_types,
            cluster=self._cluster,
            provider=self._capacity.provider,
            subnets=PUBLIC,
            security_group=self._network.learner,
            environment=learner_environment(
                region=self.region,
                scaler_url=scaler_url(self._namespace),
                artifacts=self.stores.artifacts_url,
                scratch=SCRATCH,
            )
            | self._cache.environment("learner"),
            token=self.stores.token,
        )

    def _build_scaler(self) -> ScalerService:
        return ScalerService(
            self,
            "Scaler",
            config=self._config,
            cluster=self._cluster,
            subnets=PUBLIC,
            security_group=self._network.scaler,
            namespace=self._namespace,
            environment=scaler_environment(
                config=self._config,
                learner_types=self._learner_types,
                region=self.region,
                function=self._actor.function.function_name,
                table=self.stores.jobs.table_name,
                artifacts=self.stores.artifacts_url,
                cluster=self._cluster.cluster_name,
                learner_service=self._learner.service.service_name,
            )
            | self._cache.environment("scaler"),
            token=self.stores.token,
        )

    def _build_dead_man(self) -> DeadManSwitch:
        return DeadManSwitch(
            self,
            "DeadMan",
            config=self._config,
            environment=dead_man_environment(
                table=self.stores.jobs.table_name,
                function=self._actor.function.function_name,
                cluster=self._cluster.cluster_name,
                learner_service=self._learner.service.service_name,
            ),
        )

    def _build_endpoint(self) -> ApiEndpoint | None:
        if self._config.endpoint == "none":
            return None
        return ApiEndpoint(
            self,
            "ApiEndpoint",
            config=self._config,
            vpc=self._network.vpc,
            subnets=PUBLIC,
            security_group=self._network.api_link,
            service=self._scaler.discovery,
        )

    def _watch(self) -> None:
        Observability(
            self,
            "Observability",
            config=self._config,
            actor=self._actor.alias,
            dead_man=self._dead_man,
            services=[self._scaler.service, self._learner.service],
        )

    def _tell(self) -> None:
        write_outputs(
            self,
            url=self._endpoint.url if self._endpoint else None,
            signed=self._config.endpoint == "iam",
            cluster=self._cluster,
            alias=self._actor.alias,
            stores=self.stores,
            scaler=self._scaler,
        )
