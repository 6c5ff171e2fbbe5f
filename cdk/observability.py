"""Observability: a dashboard, alarms on costs and lost work, a budget."""

from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from cdk.functions import DeadManSwitch
from shared.deployment.config import NitroConfig

_MINUTE = Duration.minutes(1)
_NAMESPACE = "Nitro"
_BUDGET_PERCENT = (50, 80, 100)


class Observability(Construct):
    """Dashboard, alarms, budget."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        actor: lambda_.Alias,
        dead_man: DeadManSwitch,
        service: ecs.BaseService,
    ) -> None:
        super().__init__(scope, id)
        self._topic = self._alarm_topic(config)
        turned_off = self._turned_off(dead_man.log_group)
        spill_over = actor.metric(
            "ProvisionedConcurrencySpilloverInvocations", statistic="Sum", period=_MINUTE
        )
        alarms = [
            self._alarm(
                "Throttles",
                actor.metric_throttles(period=_MINUTE),
                "Actors were refused: raise actor_concurrency or the account's Lambda quota",
            ),
            self._alarm(
                "Errors",
                actor.metric_errors(period=_MINUTE),
                "Actors failed: their log says why; the job continues without them",
            ),
            self._alarm(
                "SpillOver",
                spill_over,
                "More actors than warm environments for five minutes: they started cold",
                minutes=5,
            ),
            self._alarm(
                "LeftOn",
                turned_off,
                "Capacity was left on and the dead-man switch turned it off: check the scaler",
            ),
            self._alarm(
                "SwitchFails",
                dead_man.function.metric_errors(period=_MINUTE),
                "The dead-man switch failed three times in a row: check whether anything is on",
                minutes=3,
            ),
            self._alarm(
                "SwitchSilent",
                dead_man.function.metric_invocations(period=_MINUTE),
                "The dead-man switch does not run: check its schedule",
                minutes=10,
                when_silent=True,
            ),
        ]
        self._dashboard(actor=actor, spill_over=spill_over, service=service, alarms=alarms)
        self._budget(config)

    def _alarm_topic(self, config: NitroConfig) -> sns.Topic | None:
        if config.alarm_email is None:
            return None
        topic = sns.Topic(self, "Alarms", display_name="Nitro alarms", enforce_ssl=True)
        # A topic that enforces TLS has a policy of its own; SNS's, which lets alarms in, is gone.
        this_account = {"StringEquals": {"aws:SourceAccount": Stack.of(self).account}}
        topic.grant_publish(
            iam.ServicePrincipal("cloudwatch.amazonaws.com", conditions=this_account)
        )
        topic.add_subscription(subscriptions.EmailSubscription(config.alarm_email))
        return topic

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.IMetric,
        meaning: str,
        *,
        minutes: int = 1,
        when_silent: bool = False,
    ) -> cloudwatch.Alarm:
        """Raise an alarm when something happened in each of so many minutes, or in none of them."""
        compared, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            alarm_description=meaning,
            threshold=1 if when_silent else 0,
            comparison_operator=(
                compared.LESS_THAN_THRESHOLD if when_silent else compared.GREATER_THAN_THRESHOLD
            ),
            evaluation_periods=minutes,
            treat_missing_data=missing.BREACHING if when_silent else missing.NOT_BREACHING,
        )
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
        return alarm

    def _turned_off(self, log_group: logs.ILogGroup) -> cloudwatch.Metric:
        """Count the switch's interventions.

        Lambda publishes nothing about provisioned concurrency that nobody uses, so what was left
        on is only seen by the switch, which asks for it every minute.
        """
        return logs.MetricFilter(
            self,
            "TurnedOff",
            log_group=log_group,
            filter_pattern=logs.FilterPattern.literal('"turned off:"'),
            metric_namespace=_NAMESPACE,
            metric_name=f"{self.node.addr[-8:]}-turned-off",
            metric_value="1",
        ).metric(statistic="Sum", period=_MINUTE)

    def _dashboard(
        self,
        *,
        actor: lambda_.Alias,
        spill_over: cloudwatch.IMetric,
        service: ecs.BaseService,
        alarms: Sequence[cloudwatch.Alarm],
    ) -> None:
        concurrent = actor.metric("ConcurrentExecutions", statistic="Maximum", period=_MINUTE)
        warm = actor.metric("ProvisionedConcurrentExecutions", statistic="Maximum", period=_MINUTE)
        board = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))
        board.add_widgets(
            _graph("Actors at once", concurrent, warm),
            _graph("Actors a minute", actor.metric_invocations(period=_MINUTE), spill_over),
        )
        board.add_widgets(
            _graph(
                "Actors lost",
                actor.metric_errors(period=_MINUTE),
                actor.metric_throttles(period=_MINUTE),
            ),
            _graph(
                "Rollout, ms",
                actor.metric_duration(period=_MINUTE, statistic="p50"),
                actor.metric_duration(period=_MINUTE, statistic="p99"),
            ),
        )
        board.add_widgets(
            _graph("CPU of the scaler, %", service.metric_cpu_utilization()),
            _graph("Memory of the scaler, %", service.metric_memory_utilization()),
        )
        board.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24, height=3)
        )

    def _budget(self, config: NitroConfig) -> None:
        """Watch the account's spend; a filter by tag would wait for the tag to be activated."""
        notifications = None
        if config.alarm_email is not None:
            subscriber = budgets.CfnBudget.SubscriberProperty(
                address=config.alarm_email, subscription_type="EMAIL"
            )
            notifications = [
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        comparison_operator="GREATER_THAN",
                        notification_type="ACTUAL",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for percent in _BUDGET_PERCENT
            ]
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(
                    amount=config.monthly_budget_usd, unit="USD"
                ),
            ),
            notifications_with_subscribers=notifications,
        )


def _graph(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=12, height=6)
