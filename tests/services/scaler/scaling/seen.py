"""What policies are shown in tests, and agents small enough to work out by hand."""

from typing import Any

from hypothesis import strategies as st

from services.scaler.scaling.base import NoiseMemory, PastRound, RoundCosts, ScalingInput
from services.scaler.scaling.boosting import ConvexityRatio
from shared.contracts.minions_agent import STATE_SIZE, DenseLayer, MinionsAgent
from shared.contracts.rounds import GradientNoise
from shared.contracts.scaling_spec import (
    ActorRange,
    AutoScaling,
    FixedScaling,
    HydrozoaScaling,
    KungFuScaling,
    MarginalScaling,
    MinionsScaling,
    NitroScaling,
    Policy,
    RandomScaling,
    RewardWindowScaling,
    ScheduleScaling,
)

PAPER_RANGE = ActorRange(min=8, max=64)
UNDEFINED = ConvexityRatio(value=None, note="undefined")


def seen(round_index: int = 0, **changes: Any) -> ScalingInput:
    fields: dict[str, Any] = {
        "round_index": round_index,
        "actors": PAPER_RANGE,
        "ratio": UNDEFINED,
        **changes,
    }
    return ScalingInput(**fields)


def biased_agent(*biases: float) -> MinionsAgent:
    """An agent that looks at nothing: its choices have the softmax of these biases."""
    row = (0.0,) * STATE_SIZE
    return MinionsAgent(layers=(DenseLayer(weights=(row,) * len(biases), biases=biases),))


RANGES = st.tuples(st.integers(1, 3000), st.integers(1, 3000)).map(
    lambda pair: ActorRange(min=min(pair), max=max(pair))
)
FINITE = st.floats(-1e12, 1e12)


@st.composite
def policies(draw: st.DrawFn, actors: ActorRange) -> Policy:
    """Any policy with any parameters that fit a range."""
    inside = st.integers(actors.min, actors.max)
    decays = st.floats(0.01, 1.0)
    windows = st.integers(2, 8)
    counts = st.lists(inside, min_size=1, max_size=5)
    agents = [biased_agent(0.0, 1.0, -1.0)] if actors.min <= 3 else []
    chosen: Policy = draw(
        st.one_of(
            *(st.just(MinionsScaling(policy="minionsrl", agent=agent)) for agent in agents),
            st.builds(
                NitroScaling,
                window=windows,
                decay=decays,
                convention=st.sampled_from(("paper", "artifact")),
            ),
            inside.map(lambda n: FixedScaling(policy="fixed", num_actors=n)),
            st.floats(0.1, 100).map(lambda r: AutoScaling(policy="auto", steps_per_overhead=r)),
            st.builds(
                RandomScaling,
                policy=st.just("random"),
                decay=decays,
                mean_actors=st.none() | st.floats(actors.min, actors.max),
            ),
            st.builds(
                KungFuScaling,
                policy=st.just("kungfu"),
                smoothing=st.floats(0, 0.99),
                every_rounds=st.integers(1, 5),
            ),
            st.builds(
                MarginalScaling,
                policy=st.just("marginal"),
                value_of_time_usd_per_hour=st.floats(0, 1e6),
                smoothing=st.floats(0, 0.99),
                max_step=st.floats(1.01, 100),
            ),
            st.builds(HydrozoaScaling, policy=st.just("hydrozoa"), every_rounds=st.integers(1, 20)),
            st.builds(
                RewardWindowScaling,
                policy=st.just("reward_window"),
                window=windows,
                step=st.integers(1, 50),
                flat=st.floats(0, 1),
            ),
            counts.map(lambda n: ScheduleScaling(policy="schedule", num_actors=tuple(n))),
        )
    )
    return chosen


@st.composite
def inputs(draw: st.DrawFn, actors: ActorRange) -> ScalingInput:
    """Anything a policy may be shown, the degenerate included."""
    maybe = st.none() | FINITE
    seconds = st.none() | st.floats(0, 1e6)
    past = st.builds(
        PastRound,
        round_index=st.integers(0, 100),
        requested=st.integers(0, 3000),
        num_actors=st.integers(0, 3000),
        training_return=maybe,
        loss=maybe,
        kl=maybe,
        learner_s=maybe,
        actor_s=maybe,
        step_s=seconds,
        call_overhead_s=seconds,
    )
    noise = st.builds(GradientNoise, squared_norm=FINITE, variance=FINITE)
    dollars = st.floats(0, 1e6)
    costs = st.builds(
        RoundCosts,
        num_rounds=st.integers(1, 100),
        fixed_usd=dollars,
        fixed_s=dollars,
        actor_usd=dollars,
        actor_s=dollars,
    )
    memories = st.builds(
        NoiseMemory,
        squared_norm=FINITE,
        variance=FINITE,
        first_scale=st.none() | st.floats(1e-9, 1e9),
        last_scale=st.none() | st.floats(1e-9, 1e9),
        num_actors=st.integers(1, 3000),
    )
    return seen(
        draw(st.integers(0, 2000)),
        actors=actors,
        steps_to_share=draw(st.none() | st.integers(1, 2**24)),
        envs_per_actor=draw(st.integers(1, 64)),
        ratios=tuple(draw(st.lists(st.floats(0, 1e300), max_size=8))),
        ratio=draw(
            st.builds(ConvexityRatio, value=st.none() | st.floats(0, 1e300), note=st.just(""))
        ),
        gradient_noise=draw(st.none() | noise),
        fragment_noise=draw(st.none() | noise),
        costs=draw(st.none() | costs),
        memory=draw(st.none() | memories),
        seed=draw(st.integers(0, 2**31 - 1)),
        past=tuple(draw(st.lists(past, max_size=5))),
        evaluation_return=draw(maybe),
        remaining_usd=draw(st.floats(0, 1e6)),
    )
