"""`nitro.ActorPool`: serverless actors for a training loop of one's own.

    with nitro.ActorPool("CartPole-v1", fragment=128, actors=(2, 8), budget_usd=0.5) as pool:
        for round in pool.rounds(50):
            batch = pool.collect(agent)        # the policy in it, by names: policy_map="cleanrl"
            train(agent, batch.torch())

Local by default: the block starts cache, scaler and actors on this machine and ends them. With
`api_url` the same actors run on AWS Lambda, at the price and under the budget of the job that the
pool opens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nitro.errors import EXIT_FAILED, CommandError
from nitro.pool.batch import Batch
from nitro.pool.connection import Connection, connected
from nitro.pool.external_job import (
    Actors,
    Scaling,
    external_spec,
    require_counts,
    require_range,
)
from nitro.pool.fragments import OverlappingFragments
from nitro.pool.policy import Policy
from nitro.pool.policy_maps import Module, PolicyMap, named_map, policy_of
from nitro.pool.round_calls import Bills, RoundCalls
from nitro.pool.rounds import SyncRounds
from nitro.pool.stopping import PoolStopped
from nitro.python.makers import Maker, maker_name
from services.learner.rounds.lost_round import RoundLostError
from services.learner.scaler.client import ScalerError
from shared.cache.connection import CacheError
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.jobs import JobStatus, StopReason
from shared.contracts.leases import FinishRequest
from shared.contracts.rounds import Curvature, EvaluationResult, GradientNoise, RoundPlan
from shared.environments.packages import maker_env_id

_COMPLETED: frozenset[StopReason] = frozenset({"max_rounds", "target_return"})
_LONGEST_ERROR = 4000


class Round:
    """A round that `ActorPool.rounds` yields, before its actors are launched.

    Attributes:
        number: From 0.
        actors: How many the scaling policy asks for, as budget and concurrency allow.
        reason: Why so many, in words.
        boosting_score: The policy's score in [0, 1]; None where it has none.
        spent_usd: What the job was billed before the round.
    """

    def __init__(self, plan: RoundPlan, bills: Bills) -> None:
        self.number = plan.round
        self.actors = plan.num_actors
        self.reason = plan.reason
        self.boosting_score = plan.boosting_score
        self.spent_usd = plan.spent_usd
        self._bill = bills.of(plan.round)

    def __repr__(self) -> str:
        return f"<Round {self.number}: {self.actors} actors, {self.reason}>"

    @property
    def cost_usd(self) -> float | None:
        """Dollars that the round was billed; None until it is, when the next round is planned."""
        return self._bill()


class ActorPool:
    """Actors that roll out a policy whenever the training loop asks; a context manager.

    Entering it opens a job whose learner is the program itself (`learner: external`). Leaving it
    ends the job. A program that is killed loses the job after a minute, and nothing stays on.
    Uncaught `PoolStopped` ends the block and goes no further.

    Args:
        env: Name of a registered environment. On this machine it may also be a function or class
            that makes one, at the top level of a file that can be imported.
        fragment: Steps T of each environment in a round.
        actors: Fewest and most actors of a round, or one fixed number.
        policy: Scaling policy that decides about their number: its name, or a mapping with its
            parameters, such as `{"policy": "kungfu", "every_rounds": 2}`. Default: `marginal`, and
            `nitro` where rounds overlap.
        budget_usd: The most that the job may cost; on this machine, as projected to AWS.
        policy_map: Where the policy is in the modules that `collect` is given: a `PolicyMap`, or
            `sequential`, `cleanrl`, `sb3` or `rllib`.
        seed: Decides all that is random in the environments and in the actions.
        envs_per_actor: Environments B that each actor steps side by side: columns of its own.
        rounds_in_flight: Rounds open at a time; above 1 for `stream` alone.
        horizon: Steps after which an episode is cut. `limit`: where the environment cuts it.
            `fragment`: every fragment begins with a reset.
        max_rounds: Ends the job after so many rounds.
        max_wall_s: Ends the job after so many seconds.
        target_return: Ends the job once an evaluation's mean return reaches it.
        evaluate_every: Rounds between two evaluations with the most likely actions; 0 for none.
            Default: 5 with a target, else 0.
        evaluation_episodes: Episodes of an evaluation, an actor each.
        api_url: REST API of a deployment; default: NITRO_API_URL, or this machine.
        token: Its bearer token; default: NITRO_TOKEN or NITRO_TOKEN_FILE.
        runs_dir: Folder of the local system.
        processes: Actors that really run at once on this machine; default: one per core.
        environment_packages: Modules that register environments of one's own, on this machine.
        **fields: Further fields of a job: `env_kwargs`, `wrappers`, `warm`, `name`, `tags`.

    Raises:
        CommandError: A field is wrong, the job was refused, or the API or the cache cannot be
            reached. Wrong fields are named before anything starts.
    """

    def __init__(
        self,
        env: str | Maker,
        *,
        fragment: int,
        actors: Actors = (8, 64),
        policy: Scaling | None = None,
        budget_usd: float = 5.0,
        policy_map: PolicyMap | str | None = None,
        seed: int = 0,
        envs_per_actor: int = 1,
        rounds_in_flight: int = 1,
        horizon: int | str = "limit",
        max_rounds: int | None = None,
        max_wall_s: float | None = None,
        target_return: float | None = None,
        evaluate_every: int | None = None,
        evaluation_episodes: int = 10,
        api_url: str | None = None,
        token: str | None = None,
        runs_dir: str | Path = "runs",
        processes: int | None = None,
        environment_packages: Sequence[str] | None = None,
        **fields: Any,
    ) -> None:
        counts = {"fragment": fragment, "envs_per_actor": envs_per_actor}
        require_counts({**counts, "rounds_in_flight": rounds_in_flight})
        require_range(actors)
        if not isinstance(env, str):
            name = maker_name(env)
            env, environment_packages = maker_env_id(name), [*(environment_packages or ()), name]
        self._policy_map = named_map(policy_map)
        self._spec = external_spec(
            env,
            fragment=fragment,
            actors=actors,
            policy=policy or ("marginal" if rounds_in_flight == 1 else "nitro"),
            budget_usd=budget_usd,
            seed=seed,
            envs_per_actor=envs_per_actor,
            rounds_in_flight=rounds_in_flight,
            horizon=horizon,
            max_rounds=max_rounds,
            max_wall_s=max_wall_s,
            target_return=target_return,
            evaluate_every=evaluate_every,
            evaluation_episodes=evaluation_episodes,
            fields=fields,
        )
        self._opening = connected(
            self._spec,
            api_url=api_url,
            token=token,
            runs_dir=Path(runs_dir),
            processes=processes,
            environment_packages=environment_packages,
        )
        self._bills = Bills()
        self._connection: Connection | None = None
        self._opened: tuple[RoundCalls, SyncRounds, OverlappingFragments] | None = None
        self._module: Module = None
        self._done = False
        self._cost_usd = 0.0

    def __enter__(self) -> Self:
        self._leaving = ExitStack()
        self._connection = self._leaving.enter_context(self._opening)
        calls = RoundCalls(self._connection, self._bills)
        self._opened = (calls, SyncRounds(calls), OverlappingFragments(calls))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        with self._leaving:
            self._finish(error)
        self._connection = None
        return isinstance(error, PoolStopped)

    # --- what it is -------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Id of the pool's job, as `nitro jobs` and the dashboard have it."""
        return self._calls.job.job_id

    @property
    def env_id(self) -> str:
        """Name of the environment."""
        return self._spec.env_id

    @property
    def fragment(self) -> int:
        """Steps T of each environment in a round."""
        return self._spec.steps_per_actor // self._spec.envs_per_actor

    @property
    def environment(self) -> EnvironmentSpec:
        """What the environment looks like: `observation.shape`, `action`, `max_episode_steps`."""
        return self._calls.environment

    @property
    def cost_usd(self) -> float:
        """What the job was billed so far; after the block, in all."""
        if self._connection is None:
            return self._cost_usd
        return self._connection.client.cost(self.job_id).settled_usd

    @property
    def evaluations(self) -> list[EvaluationResult]:
        """Evaluations so far, in order: `policy_version`, `returns`, `mean_return`."""
        return list(self._calls.evaluations)

    @property
    def stopped(self) -> StopReason | None:
        """Why there are no more rounds; None as long as there may be."""
        return None if self._opened is None else self._calls.stop

    # --- rounds -----------------------------------------------------------------------------

    def rounds(self, number: int | None = None) -> Iterator[Round]:
        """Yield rounds until the budget, the target or another limit ends the job.

        Each is decided before it is yielded, and launched by `collect` in the loop's body.

        Args:
            number: The most rounds to yield; None for all that the job allows.

        Raises:
            CommandError: The API cannot be reached.
        """
        made = 0
        while number is None or made < number:
            with _as_errors():
                plan = self._rounds.preview()
                if plan.stop is not None:
                    self._end(plan.stop)
                    return
            yield Round(plan, self._bills)
            made += 1
        self._done = True

    def collect(self, module: Module, actors: int | None = None) -> Batch:
        """Roll a policy out, in a round of its own, and return what the actors brought.

        It blocks until all actors have answered, or at the deadline if a quorum has; what is
        missing then is launched again once. Lost actors have no columns in the batch.

        Args:
            module: A torch module or a mapping of names to arrays, which the pool's `policy_map`
                reads, or a `nitro.Policy`. It is copied before actors start.
            actors: How many to launch, within the pool's range, in place of what the scaling policy
                decides.

        Raises:
            PolicyNotSupportedError: Actors cannot run the policy; says what they can.
            PoolStopped: The job has ended, or ends here: by its budget for example.
            CommandError: Too little came of the round, or API or cache cannot be reached.
        """
        if self._spec.open_rounds > 1:
            raise CommandError("collect is for rounds_in_flight=1: use stream, or another pool")
        fewest, most = self._spec.actors.min, self._spec.actors.max
        if actors is not None and not (type(actors) is int and fewest <= actors <= most):
            raise CommandError(
                f"actors: must be a whole number in the pool's range [{fewest}, {most}], got "
                f"{actors!r:.80}"
            )
        policy = policy_of(module, self._policy_map)
        self._module = module
        with _as_errors():
            return self._rounds.collect(policy, num_actors=actors)

    def stream(
        self, module: Module | Callable[[], Module], rounds: int | None = None
    ) -> Iterator[Batch]:
        """Yield fragments as they arrive, one actor's at a time, while others are rolled out.

        `rounds_in_flight` rounds are open at a time. Whenever the oldest is over, the module's
        present weights are published as the next version and another round is opened with them. A
        fragment's `versions` say which one chose its actions; `pool.policy_version` is the newest.

        Args:
            module: What `collect` takes, read anew for each round; or a function that returns it.
            rounds: The most rounds to open; None for all that the job allows.

        Raises:
            PolicyNotSupportedError: Actors cannot run the policy; says what they can.
            PoolStopped: The job has ended before.
            CommandError: Nothing came of several rounds, or API or cache cannot be reached.
        """

        def newest() -> Policy:
            is_function = callable(module) and not hasattr(module, "state_dict")
            found = module() if is_function else module
            return policy_of(found, self._policy_map)

        with _as_errors():
            yield from self._fragments.fragments(newest, most_rounds=rounds)
        self._done = True

    @property
    def policy_version(self) -> int:
        """Version that a stream published last; -1 before the first."""
        return self._fragments.policy_version

    def report(
        self,
        *,
        curvature: Curvature | None = None,
        gradient_noise: GradientNoise | None = None,
        stats: Mapping[str, float] | None = None,
    ) -> None:
        """Tell what was measured of the update, before the next round is asked for.

        The scaling policy of the next round goes by it. What is not told keeps its last value
        within a round, and is forgotten after it.

        Args:
            curvature: As `nitro.measure_curvature` returns it; for `nitro` and `marginal`.
            gradient_noise: The same's, or one's own; for `kungfu`. Default: the curvature's.
            stats: Scalars of the update, such as `{"loss": 0.1, "kl": 0.01}`, for the dashboard.
        """
        report = self._calls.report
        if curvature is not None:
            report.curvature = curvature
            gradient_noise = gradient_noise or curvature.gradient_noise
        if gradient_noise is not None:
            report.gradient_noise = gradient_noise
        report.stats.update({name: float(value) for name, value in (stats or {}).items()})

    # --- the end ----------------------------------------------------------------------------

    @property
    def _to(self) -> Connection:
        if self._connection is None:
            raise CommandError("the pool is not open: use it in a `with` block")
        return self._connection

    @property
    def _calls(self) -> RoundCalls:
        return self._required[0]

    @property
    def _rounds(self) -> SyncRounds:
        return self._required[1]

    @property
    def _fragments(self) -> OverlappingFragments:
        return self._required[2]

    @property
    def _required(self) -> tuple[RoundCalls, SyncRounds, OverlappingFragments]:
        if self._opened is None:
            raise CommandError("the pool is not open: use it in a `with` block")
        return self._opened

    def _end(self, why: StopReason) -> None:
        """Have the job's last plan made, with its final evaluation."""
        module = self._module
        self._rounds.end(None if module is None else policy_of(module, self._policy_map), why)

    def _finish(self, error: BaseException | None) -> None:
        """Tell the scaler that the job has ended, and why."""
        to, calls = self._to, self._calls
        if isinstance(error, PoolStopped):
            calls.stop, error = error.reason, None
        if to.lease.lost:
            return  # the scaler has ended the job, or will
        status, reason = self._outcome(error)
        request = FinishRequest(
            lease_id=to.lease.lease_id,
            status=status,
            stop_reason=reason,
            error=f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            if status == "failed"
            else None,
            final_evaluation=calls.final_evaluation,
        )
        try:
            to.scaler.finish(to.job.job_id, request)
            self._cost_usd = to.client.cost(to.job.job_id).settled_usd
        except (ScalerError, CommandError):
            # The lease runs out by itself, and the scaler ends the job.
            if error is None:
                raise

    def _outcome(self, error: BaseException | None) -> tuple[Any, StopReason]:
        stop = self._calls.stop
        if error is not None and not isinstance(error, KeyboardInterrupt | GeneratorExit):
            return "failed", "error"
        if stop is None and self._done and error is None:
            return "succeeded", "max_rounds"
        reason: StopReason = stop or "user"
        status: JobStatus = "succeeded" if reason in _COMPLETED else "stopped"
        return status, reason


@contextmanager
def _as_errors() -> Iterator[None]:
    """Raise what went wrong with a round as an error that says what to do."""
    try:
        yield
    except (RoundLostError, ScalerError, CacheError) as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error
