"""What happened to a job, over HTTP and from a scaler to the next."""

from shared.contracts.views.events import KEPT_EVENTS, EventPage
from tests.services.scaler.lambda_endpoint import Reply, Task, function_error, healthy
from tests.services.scaler.running import Scaler, StartScaler, result

SMALL = {"actors": {"min": 2, "max": 4}, "evaluation": {"every_rounds": 0}}


def told(scaler: Scaler, job_id: str, **query: int) -> EventPage:
    response = scaler.http.get(f"/v1/jobs/{job_id}/events", params=query)
    assert response.status_code == 200, response.text
    return EventPage.model_validate_json(response.content)


def kinds(page: EventPage) -> list[str]:
    return [event.kind for event in page.events]


def test_a_jobs_life_is_told_also_after_a_restart(start_scaler: StartScaler) -> None:
    def behave(task: Task, nth: int) -> Reply:
        return function_error("<b>broke</b>") if task["actor_index"] == 1 else healthy(task, nth)

    with start_scaler() as scaler:
        scaler.lambdas.rollouts_behave(behave)
        lease = scaler.begin(**SMALL)
        job_id = lease.job.job_id
        scaler.played(lease, 0)
        scaler.lambdas.rollouts_behave(healthy)
        scaler.played(lease, 0, attempt=1, missing=(1,))
        scaler.http.post(
            f"/v1/jobs/{job_id}/scaling", json={"scaling": {"policy": "fixed", "num_actors": 3}}
        )
        scaler.http.post(f"/v1/jobs/{job_id}/stop")
        scaler.finish(lease, status="stopped", stop_reason="user")
        scaler.http.post(f"/v1/jobs/{job_id}/resume")
        before = told(scaler, job_id)
    with start_scaler() as scaler:
        page = told(scaler, job_id)
        newest = told(scaler, job_id, after=page.last - 2)
    assert page == before
    assert [event.number for event in page.events] == [*range(page.last + 1)]
    seen = [kind for kind in kinds(page) if kind not in ("queued", "warm_changed")]
    assert seen == [
        "submitted",
        "claimed",
        "launched",
        "actors_retried",
        "actors_lost",
        "reopened",
        "scaling_switched",
        "stop_asked",
        "ended",
        "resumed",
    ]
    lost = next(event for event in page.events if event.kind == "actors_lost")
    assert (lost.round, lost.attempt, lost.count) == (0, 0, 1)
    assert "<b>broke</b>" in lost.text
    assert (len(newest.events), newest.forgotten) == (2, 0)


def test_events_have_the_time_of_the_scalers_clock(start_scaler: StartScaler) -> None:
    with start_scaler(now=lambda: 1_234.5) as scaler:
        lease = scaler.begin(**SMALL)
        scaler.played(lease, 0)
        scaler.http.delete(f"/v1/leases/{lease.lease_id}")
        page = told(scaler, lease.job.job_id)
    assert {"claimed", "launched", "handed_back"} <= {*kinds(page)}
    assert {event.at for event in page.events} == {1_234.5}


def test_what_learners_do_to_a_job_is_told(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    job_id = lease.job.job_id
    scaler.played(lease, 0)
    scaler.played(lease, 1, previous=result(0))
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    scaler.played(scaler.lease(), 0)
    seen = kinds(told(scaler, job_id))
    assert seen.count("claimed") == 2
    assert seen.index("handed_back") < seen.index("rewound")
    rewound = next(event for event in told(scaler, job_id).events if event.kind == "rewound")
    assert rewound.round == 0


def test_only_the_newest_events_are_kept(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    job_id = lease.job.job_id
    for _ in range(KEPT_EVENTS):
        scaler.call(scaler.parts.leases.give_up(lease.lease_id))
        lease = scaler.lease()
    page = told(scaler, job_id, after=0, limit=KEPT_EVENTS)
    assert page.last > 2 * KEPT_EVENTS
    kept = range(page.last + 1 - KEPT_EVENTS, page.last + 1)
    assert [event.number for event in page.events] == [*kept]
    assert page.forgotten == page.last - KEPT_EVENTS
