"""`nitro.ActorPool`: serverless actors for custom training loops.

    with nitro.ActorPool("CartPole-v1", fragment=128, actors=(2, 8), budget_usd=0.5) as pool:
        for round in pool.rounds(50):
            batch = pool.collect(agent)        # the policy in it, by names: policy_map="cleanrl"
            train(agent, batch.torch())

Local by default: the block starts cache, scaler and actors on this machine and ends them. With
`api_url` the same actors run on AWS Lambda, at the price and under the budget of the job that the
pool opens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nitro.errors import CommandError
from nitro.pool.batch import Batch
from nitro.pool.connection import connected
from nitro.pool.external_job import (
    Actors,
    Scaling,
    external_spec,
    require_counts,
    require_range,
    require_within,
)
from nitro.pool.open_pool import OpenPool
from nitro.pool.policy import Policy
from nitro.pool.policy_maps import Module, PolicyMap, named_map, policy_of
from nitro.pool.round import Round
from nitro.pool.round_calls import checked_stats
from nitro.pool.stopping import as_errors
from nitro.python.makers import Maker, maker_name
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import Curvature, EvaluationResult, GradientNoise
from shared.environments.packages import maker_env_id


class ActorPool:
    """Actors that roll out a policy on request of a training loop; a context manager.

    Entering it opens a job whose learner is the program itself (`learner: external`). Leaving it
    ends the job. A killed program loses the job after a minute, and nothing stays on. An uncaught
    `PoolStopped` of the pool ends the block without an error.

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
        seed: Determines all randomness of environments and actions.
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
        processes: Actors that run at once on this machine; default: one per core.
        own: Actor processes beside the program, on its own cores: a number, or `auto` for one on
            each core. Functions do what these cannot do in time. The program then needs the
            simulators. Default: none.
        environment_packages: Modules that register custom environments, on this machine.
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
        own: int | str = 0,
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
            own=own,
            policy=policy,
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
        self._opened: OpenPool | None = None
        self._module: Module = None

    def __enter__(self) -> Self:
        if self._opened is not None:
            raise CommandError("the pool was open before: make another for another job")
        self._leaving = ExitStack()
        self._opened = OpenPool(self._leaving.enter_context(self._opening))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        with self._leaving:
            self._open.finish(error, newest=self._newest)
        return self._open.stopped_by(error) is not None

    # --- what it is -------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Id of the pool's job, as `nitro jobs` and the dashboard have it."""
        return self._open.job_id

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
        """The environment's form: `observation.shape`, `action`, `max_episode_steps`."""
        return self._open.calls.environment

    @property
    def cost_usd(self) -> float:
        """The job's bill so far; after the block, in all."""
        return self._open.cost_usd

    @property
    def evaluations(self) -> list[EvaluationResult]:
        """Evaluations so far, in order: `policy_version`, `returns`, `mean_return`."""
        return list(self._open.calls.evaluations)

    @property
    def stopped(self) -> StopReason | None:
        """Why there are no more rounds; None as long as there may be."""
        return None if self._opened is None else self._open.calls.stop

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
            with as_errors():
                plan = self._open.rounds.preview()
                if plan.stop is not None:
                    self._open.rounds.end(self._newest(), plan.stop)
                    return
            yield Round(plan, self._open.calls.bills)
            made += 1
        self._open.is_complete = True

    def collect(self, module: Module, actors: int | None = None) -> Batch:
        """Roll a policy out in a new round, and return the actors' batch.

        It blocks until all actors have answered, or until the deadline with a quorum; missing
        actors are relaunched once. Lost actors have no columns in the batch. After Ctrl-C or an
        error, the next call continues the same round with its original policy and actors, ignoring
        its arguments. A lost round is not relaunched: open a new pool.

        Args:
            module: A torch module or a mapping of names to arrays, which the pool's `policy_map`
                reads, or a `nitro.Policy`. It is copied before actors start.
            actors: Number to launch, within the pool's range; overrides the scaling policy.

        Raises:
            PolicyNotSupportedError: Actors cannot run the policy; says what they can.
            PoolStopped: The job has ended, or ends here: by its budget for example.
            CommandError: The round got too few trajectories, or API or cache cannot be reached.
        """
        if self._spec.open_rounds > 1:
            raise CommandError("collect is for rounds_in_flight=1: use stream, or another pool")
        if self._open.fragments.has_begun:
            raise CommandError("collect: this pool's rounds are streamed; use another pool")
        require_within(actors, self._spec)
        policy = policy_of(module, self._policy_map, environment=self.environment)
        self._module = module
        with as_errors():
            return self._open.rounds.collect(policy, num_actors=actors)

    def stream(
        self, module: Module | Callable[[], Module], rounds: int | None = None
    ) -> Iterator[Batch]:
        """Yield fragments as they arrive, one actor's at a time, while other actors are working.

        `rounds_in_flight` rounds are open at a time. At the end of the oldest, the module's current
        weights are published as the next version, and another round is opened with them. A
        fragment's `versions` identify the policy that chose its actions; `pool.policy_version` is
        the newest. A pool streams once.

        Args:
            module: As for `collect`, read again for each round; or a function that returns it.
            rounds: The most rounds to open; None for all that the job allows.

        Raises:
            PolicyNotSupportedError: Actors cannot run the policy; says what they can.
            PoolStopped: The job has ended before.
            CommandError: The pool has made rounds before, several rounds got no trajectory, or API
                or cache cannot be reached.
        """

        def newest() -> Policy:
            is_function = callable(module) and not hasattr(module, "state_dict")
            found = module() if is_function else module
            return policy_of(found, self._policy_map, environment=self.environment)

        self._open.calls.require_open()
        if self._open.fragments.has_begun or self._open.rounds.has_begun:
            raise CommandError("stream: this pool has made rounds before; use another pool")
        with as_errors():
            yield from self._open.fragments.fragments(newest, most_rounds=rounds)
        self._open.is_complete = True

    @property
    def policy_version(self) -> int:
        """Version that the stream published last; -1 before the first."""
        return self._open.fragments.policy_version

    def report(
        self,
        *,
        curvature: Curvature | None = None,
        gradient_noise: GradientNoise | None = None,
        stats: Mapping[str, float] | None = None,
    ) -> None:
        """Report measurements of the update before the next round is requested.

        The next round's scaling policy uses them. Unreported values keep their last value within a
        round, and are dropped after it.

        Args:
            curvature: As `nitro.measure_curvature` returns it; for `nitro` and `marginal`.
            gradient_noise: Measured in another way; for `kungfu`. Default: the curvature's.
            stats: Scalars of the update, such as `{"loss": 0.1, "kl": 0.01}`, for the dashboard.

        Raises:
            CommandError: A name has other characters than letters, digits and `_.-`, or a value is
                not finite.
        """
        report = self._open.calls.report
        if curvature is not None:
            report.curvature = curvature
            gradient_noise = gradient_noise or curvature.gradient_noise
        if gradient_noise is not None:
            report.gradient_noise = gradient_noise
        report.stats.update(checked_stats(stats or {}))

    def _newest(self) -> Policy | None:
        """Return the program's current policy; None before the first round."""
        if self._module is None:
            return None
        return policy_of(self._module, self._policy_map, environment=self.environment)

    @property
    def _open(self) -> OpenPool:
        if self._opened is None:
            raise CommandError("the pool is not open: use it in a `with` block")
        return self._opened
