"""What is watched, and who hears of it."""

from tests.cdk.template import Synthesised, text

_ALARMS = {"Throttles", "Errors", "SpillOver", "LeftOn", "SwitchFails", "SwitchSilent"}


def test_there_is_an_alarm_on_everything_that_costs_money_or_work(synthesised: Synthesised) -> None:
    alarms = synthesised.of_type("AWS::CloudWatch::Alarm")
    assert {name.removeprefix("Observability")[:-8] for name in alarms} == _ALARMS
    for alarm in alarms.values():
        assert alarm["AlarmDescription"]


def test_alarms_on_actors_watch_the_alias_that_is_invoked(synthesised: Synthesised) -> None:
    for name in ("Throttles", "Errors", "SpillOver"):
        alarm = synthesised.named("AWS::CloudWatch::Alarm", f"Observability{name}")
        dimensions = {d["Name"]: text(d["Value"]) for d in alarm["Dimensions"]}
        assert dimensions["FunctionName"].startswith("<ActorFunction")
        assert dimensions["Resource"].endswith(":live")


def test_capacity_left_on_is_what_the_switch_says_it_turned_off(synthesised: Synthesised) -> None:
    counted = synthesised.only("AWS::Logs::MetricFilter")
    assert text(counted["LogGroupName"]).startswith("<DeadManLogs")
    assert counted["FilterPattern"] == '"turned off:"'
    (metric,) = counted["MetricTransformations"]
    alarm = synthesised.named("AWS::CloudWatch::Alarm", "ObservabilityLeftOn")
    assert (alarm["Namespace"], alarm["MetricName"]) == (
        metric["MetricNamespace"],
        metric["MetricName"],
    )


def test_a_switch_that_does_not_run_is_an_alarm(synthesised: Synthesised) -> None:
    alarm = synthesised.named("AWS::CloudWatch::Alarm", "ObservabilitySwitchSilent")
    assert alarm["TreatMissingData"] == "breaching"
    assert alarm["ComparisonOperator"] == "LessThanThreshold"


def test_nobody_is_written_to_unless_somebody_is_named(
    synthesised: Synthesised, changed: Synthesised
) -> None:
    assert not synthesised.of_type("AWS::SNS::Topic")
    assert "NotificationsWithSubscribers" not in synthesised.only("AWS::Budgets::Budget")

    assert changed.only("AWS::SNS::Subscription")["Endpoint"] == "ops@example.org"
    budget = changed.only("AWS::Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 250, "Unit": "USD"}
    thresholds = [n["Notification"]["Threshold"] for n in budget["NotificationsWithSubscribers"]]
    assert thresholds == [50, 80, 100]


def test_alarms_of_this_account_may_publish_to_the_topic_they_name(changed: Synthesised) -> None:
    (topic,) = ({"Ref": name} for name in changed.of_type("AWS::SNS::Topic"))
    for alarm in changed.of_type("AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] == [topic]
    policy = changed.only("AWS::SNS::TopicPolicy")
    assert policy["Topics"] == [topic]
    statements = policy["PolicyDocument"]["Statement"]
    (allowed,) = (s for s in statements if s["Effect"] == "Allow")
    assert (allowed["Action"], allowed["Resource"]) == ("sns:Publish", topic)
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    this_account = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert allowed["Condition"] == {"StringEquals": this_account}


def test_the_dashboard_shows_actors_scaler_and_alarms(synthesised: Synthesised) -> None:
    body = text(synthesised.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    for title in ("Actors at once", "Actors lost", "CPU of the scaler, %", "Alarms"):
        assert title in body
