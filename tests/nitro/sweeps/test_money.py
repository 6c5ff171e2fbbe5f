"""One budget for many jobs: whatever they do, the sum never passes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro.sweeps.money import left_usd, next_cap_usd, share_usd
from nitro.sweeps.rows import Outcome, Row
from shared.contracts.job_spec import JobSpec

SPEC = JobSpec(env_id="CartPole-v1")


def row(seed: int = 1, **fields: object) -> Row:
    made = Row(env_id="CartPole-v1", setting="default", seed=seed, spec=SPEC)
    return made.model_copy(update=fields)


def spent(usd: float, *, reserved: float = 0.0) -> Outcome:
    return Outcome(rounds=1, env_steps=1, spent_usd=usd, reserved_usd=reserved)


def test_an_open_job_counts_with_its_cap_and_any_other_with_its_cost() -> None:
    rows = [
        row(status="open", cap_usd=0.5, job_id="a", outcome=spent(0.1)),
        row(status="finished", cap_usd=0.5, job_id="b", outcome=spent(0.2)),
        row(),
    ]
    assert left_usd(1.0, rows) == pytest.approx(0.3)
    cut_short = row(status="finished", job_id="c", outcome=spent(0.01, reserved=0.1))
    assert left_usd(1.0, [*rows, cut_short]) == pytest.approx(0.3 - 0.11)
    assert cut_short.spent_usd == 0.01
    assert share_usd(1.0, rows, places=3) == pytest.approx(0.1)


def test_a_job_that_goes_on_needs_at_least_the_cap_it_had() -> None:
    paused = row(status="waiting", cap_usd=0.5, job_id="a", outcome=spent(0.1))
    assert next_cap_usd(paused, 0.2, left=0.4) == 0.5
    assert next_cap_usd(paused, 0.6, left=0.6) == pytest.approx(0.7)
    assert next_cap_usd(paused, 0.1, left=0.3) is None
    assert next_cap_usd(row(), 0.0, left=0.0) is None


@given(
    budget=st.floats(0.01, 10.0),
    places=st.integers(1, 5),
    uses=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
)
def test_caps_and_costs_never_pass_the_budget(
    budget: float, places: int, uses: list[float]
) -> None:
    """Jobs begin, use a part of their caps, pause, and go on."""
    rows = [row(seed) for seed in range(8)]
    for step, use in enumerate(uses):
        index = step % len(rows)
        now = rows[index]
        if now.status == "open":
            assert now.cap_usd is not None
            cost = now.spent_usd + use * (now.cap_usd - now.spent_usd)
            rows[index] = now.model_copy(update={"status": "waiting", "outcome": spent(cost)})
        else:
            share = share_usd(budget, rows, places=places)
            cap = next_cap_usd(now, share, left_usd(budget, rows))
            if cap is not None:
                begun = {"status": "open", "cap_usd": cap, "job_id": "job"}
                rows[index] = now.model_copy(update=begun)
        held = [r.cap_usd if r.status == "open" and r.cap_usd else r.spent_usd for r in rows]
        assert sum(held) <= budget * (1 + 1e-9)
