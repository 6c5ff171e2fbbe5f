"""Small rounds for the learner's tests: plans, trajectories and results made by hand."""

import numpy as np

from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.contracts.rounds import RoundPlan
from shared.trajectory.trajectory import Episode, Trajectory, encode_episode, encode_trajectory

STEPS = 5

ENVIRONMENT = EnvironmentSpec(
    env_id="Toy-v0",
    observation=ObservationSpec(shape=(3,), dtype="float32"),
    action=DiscreteActionSpec(n=2),
    max_episode_steps=100,
    versions={},
    keeps_state=True,
)


def plan(
    job_id: str,
    *,
    num_actors: int = 4,
    num_evaluations: int = 0,
    deadline_s: float = 30.0,
    age_s: float = 0.0,
    quorum: int = 2,
    attempt: int = 0,
    round_index: int = 0,
) -> RoundPlan:
    """A plan as the scaler would answer it."""
    return RoundPlan(
        job_id=job_id,
        round=round_index,
        attempt=attempt,
        policy_version=round_index,
        num_actors=num_actors,
        num_evaluations=num_evaluations,
        requested=num_actors,
        boosting_score=1.0,
        ratio=None,
        reason="test",
        deadline_s=deadline_s,
        age_s=age_s,
        quorum=quorum,
        stop=None,
        spent_usd=0.0,
        settled=(),
    )


def trajectory(
    job_id: str,
    actor_index: int,
    *,
    round_index: int = 0,
    policy_version: int | None = None,
    dropped_episodes: int = 0,
) -> Trajectory:
    """A trajectory of STEPS steps whose numbers derive from its index."""
    rng = np.random.default_rng(actor_index)
    return Trajectory(
        job_id=job_id,
        round=round_index,
        actor_index=actor_index,
        policy_version=round_index if policy_version is None else policy_version,
        observation=rng.standard_normal((STEPS + 1, 1, 3)).astype(np.float32),
        final_observation=np.zeros((0, 3), np.float32),
        action=rng.integers(0, 2, (STEPS, 1)),
        reward=np.ones((STEPS, 1), np.float32),
        terminated=np.arange(STEPS).reshape(STEPS, 1) == 2,
        truncated=np.zeros((STEPS, 1), np.bool_),
        log_prob=np.full((STEPS, 1), -0.6931, np.float32),
        episode_returns=np.array([actor_index], np.float32),
        episode_lengths=np.array([3], np.int32),
        dropped_episodes=dropped_episodes,
    )


def deliver(cache: TrajectoryCache, job_id: str, actor_index: int, **kwargs: int) -> str:
    """Store a trajectory as an actor would; return what the cache said."""
    payload = encode_trajectory(trajectory(job_id, actor_index, **kwargs))
    round_index = kwargs.get("round_index", 0)
    return cache.store_result(
        job_id, round_index, mode="sample", actor_index=actor_index, payload=payload
    )


def deliver_going_on(
    cache: TrajectoryCache, job_id: str, actor_index: int, *, round_index: int, policy_version: int
) -> None:
    """Store a trajectory of an episode that is as many fragments old as its reward says."""
    (left,) = cache.fetch_starts(job_id, round_index, (actor_index,)) or (b"",)
    played = int(left or b"0")
    made = trajectory(
        job_id, actor_index, round_index=round_index, policy_version=policy_version
    ).replaced(
        reward=np.full((STEPS, 1), played, np.float32),
        episode_returns=np.array([played], np.float32),
        snapshots=(str(played + 1).encode(),),
        earlier_returns=(float(played),),
    )
    payload = encode_trajectory(made)
    cache.store_result(job_id, round_index, mode="sample", actor_index=actor_index, payload=payload)


def deliver_episode(
    cache: TrajectoryCache,
    job_id: str,
    actor_index: int,
    *,
    round_index: int = 0,
    policy_version: int | None = None,
    episode_return: float | None = None,
) -> str:
    """Store an evaluation episode, whose return is its index unless another one is given."""
    episode = Episode(
        job_id=job_id,
        round=round_index,
        actor_index=actor_index,
        policy_version=round_index if policy_version is None else policy_version,
        episode_return=float(actor_index) if episode_return is None else episode_return,
        length=7,
    )
    return cache.store_result(
        job_id,
        round_index,
        mode="evaluate",
        actor_index=actor_index,
        payload=encode_episode(episode),
    )
