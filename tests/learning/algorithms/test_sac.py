"""SAC's gradient steps against a naive version, what it owes, and its exact state."""

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from learning.algorithms.policy_update import StateArrays
from learning.algorithms.replay_learner import CHUNK, ReplayLearner
from learning.algorithms.sac import Crossq, Sac
from shared.hyperparameters.crossq import CrossqHyperparameters
from shared.hyperparameters.sac import SacHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory import codec
from shared.trajectory.trajectory import Trajectory
from tests.learning.algorithms.off_policy_rounds import assert_same_state
from tests.learning.trajectories import CONTINUOUS, DISCRETE

RULE = SacHyperparameters(
    hidden_sizes=(16, 12), minibatch_size=32, learning_rate=3e-3, learning_starts=20
)
CROSSQ = CrossqHyperparameters(
    hidden_sizes=(16, 12),
    value_hidden_sizes=(),
    minibatch_size=32,
    learning_rate=3e-3,
    learning_starts=20,
)
OBSERVATION, ACTION, STEPS = 5, 2, 24


def trajectory(index: int, *, policy_version: int = 0) -> Trajectory:
    """24 steps of one environment, some of which end an episode."""
    rng = np.random.default_rng(index)
    terminated, truncated = rng.random((2, STEPS, 1)) < 0.1
    num_cut, num_ended = (truncated & ~terminated).sum(), (truncated | terminated).sum()
    return Trajectory(
        job_id="job",
        round=0,
        actor_index=index,
        policy_version=policy_version,
        observation=rng.standard_normal((STEPS + 1, 1, OBSERVATION), np.float32),
        final_observation=rng.standard_normal((num_cut, OBSERVATION), np.float32),
        action=np.tanh(rng.standard_normal((STEPS, 1, ACTION), np.float32)),
        reward=rng.standard_normal((STEPS, 1), np.float32),
        terminated=terminated,
        truncated=truncated,
        log_prob=np.zeros((STEPS, 1), np.float32),
        episode_returns=np.ones(num_ended, np.float32),
        episode_lengths=np.ones(num_ended, np.int32),
    )


def learner(rule: SacHyperparameters = RULE, *, seed: int = 3) -> ReplayLearner:
    kind = Crossq if isinstance(rule, CrossqHyperparameters) else Sac
    return kind(CONTINUOUS, rule, seed=seed)


def restored(saved: ReplayLearner, rule: SacHyperparameters = RULE) -> ReplayLearner:
    other = learner(rule, seed=99)
    other.load_state(*saved.state())
    replay = saved.replay
    other.replay.restart(replay.first)
    other.replay.add(replay.between(replay.first, replay.added))
    return other


class Naive:
    """SAC as its paper writes it down, in float64, of modules and distributions of torch."""

    def __init__(self, arrays: StateArrays, rule: SacHyperparameters) -> None:
        self.rule = rule
        normalised = isinstance(rule, CrossqHyperparameters)
        (self.policy,) = _modules(
            arrays["policy"], OBSERVATION, rule.hidden_sizes, 2 * ACTION, normalised=normalised
        )
        # Without slow copies the critics are their own.
        self.critics, self.targets = (
            _modules(
                arrays[name], OBSERVATION + ACTION, rule.hidden_sizes, 1, normalised=normalised
            )
            for name in ("critics", "critics" if normalised else "targets")
        )
        self.log_alpha = torch.tensor(arrays["temperature"]).double().requires_grad_()
        self.optimisers = [
            torch.optim.Adam(parameters, lr=rule.learning_rate, betas=(rule.adam_beta1, 0.999))
            for parameters in (
                [self.log_alpha],
                [p for critic in self.critics for p in critic.parameters()],
                self.policy.parameters(),
            )
        ]

    def act(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.policy(observation).chunk(2, dim=1)
        std = torch.exp(-5 + 3.5 * (torch.tanh(raw) + 1))
        squashed = TransformedDistribution(
            Independent(Normal(mean, std), 1), [TanhTransform(cache_size=1)]
        )
        action = torch.tanh(mean + std * noise)
        return action, squashed.log_prob(action)  # type: ignore[no-untyped-call]

    def value(self, critics: list[nn.Sequential], observation: Tensor, action: Tensor) -> Tensor:
        inputs = torch.cat([observation, action], dim=1)
        smaller: Tensor = torch.min(critics[0](inputs), critics[1](inputs))
        return smaller[:, 0]

    def step(self, minibatch: NDArray[np.float64], noises: Tensor) -> None:
        rows = torch.tensor(minibatch)
        seen, following, action, reward, goes_on = torch.split(rows, [5, 5, 2, 1, 1], dim=1)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            after, after_log_prob = self.act(following, noises[1])
            soft = self.value(self.targets, following, after) - alpha * after_log_prob
            target = reward[:, 0] + 0.99 * goes_on[:, 0] * soft
        acted, log_prob = self.act(seen, noises[0])
        inputs = torch.cat([seen, action], dim=1)
        losses = (
            -(self.log_alpha * (log_prob.detach() + ACTION * self.rule.target_entropy)).mean(),
            sum(0.5 * ((critic(inputs)[:, 0] - target) ** 2).mean() for critic in self.critics),
        )
        for loss, optimiser in zip(losses, self.optimisers, strict=False):
            optimiser.zero_grad()
            torch.as_tensor(loss).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        policy_loss = (alpha * log_prob - self.value(self.critics, seen, acted)).mean()
        self.optimisers[2].zero_grad()
        policy_loss.backward()  # type: ignore[no-untyped-call]
        self.optimisers[2].step()
        for critic, slow in zip(self.critics, self.targets, strict=True):
            for fresh, old in zip(critic.parameters(), slow.parameters(), strict=True):
                old.data = 0.995 * old.data + 0.005 * fresh.data


class NaiveCrossq(Naive):
    """CrossQ as its paper's figure 2 writes it down, by the same means."""

    num_steps = 0

    def step(self, minibatch: NDArray[np.float64], noises: Tensor) -> None:
        rows = torch.tensor(minibatch)
        seen, following, action, reward, goes_on = torch.split(rows, [5, 5, 2, 1, 1], dim=1)
        alpha = self.log_alpha.exp().detach()
        after, after_log_prob = (each.detach() for each in self.act(following, noises[1]))
        inputs = torch.cat([torch.cat([seen, action], 1), torch.cat([following, after], 1)])
        _training(self.critics, True)
        now, then = zip(*(critic(inputs)[:, 0].chunk(2) for critic in self.critics), strict=True)
        _training(self.critics, False)
        soft = torch.min(*then).detach() - alpha * after_log_prob
        target = reward[:, 0] + 0.99 * goes_on[:, 0] * soft
        loss = torch.stack([0.5 * ((value - target) ** 2).mean() for value in now]).sum()
        self.optimise(1, loss)
        if self.num_steps % 3 == 0:
            _training([self.policy], True)
            acted, log_prob = self.act(seen, noises[0])
            _training([self.policy], False)
            self.optimise(2, (alpha * log_prob - self.value(self.critics, seen, acted)).mean())
            surplus = log_prob.detach() + ACTION * self.rule.target_entropy
            self.optimise(0, -(self.log_alpha * surplus).mean())
        self.num_steps += 1

    def optimise(self, index: int, loss: Tensor) -> None:
        self.optimisers[index].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimisers[index].step()


class Normalise(nn.Module):
    """Batch normalisation without gain and bias; variances are those of the minibatch alone."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mean, self.variance = torch.zeros(size).double(), torch.ones(size).double()

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
            self.mean = 0.99 * self.mean + 0.01 * mean.detach()
            self.variance = 0.99 * self.variance + 0.01 * variance.detach()
        return (x - mean) / (variance + 1e-3) ** 0.5


def _training(modules: list[nn.Sequential], on: bool) -> None:
    for module in modules:
        module.train(on)


def _modules(
    flat: NDArray[np.generic],
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int,
    *,
    normalised: bool = False,
) -> list[nn.Sequential]:
    left, found = torch.tensor(flat.astype(np.float64)), []
    while len(left):
        sizes = (inputs, *hidden, outputs)
        modules: list[nn.Module] = []
        for i, o in zip(sizes[:-1], sizes[1:], strict=True):
            layer = nn.Linear(i, o, dtype=torch.float64)
            layer.weight.data, layer.bias.data = left[: i * o].reshape(o, i), left[i * o :][:o]
            left = left[i * o + o :]
            modules += [Normalise(i), layer, nn.ReLU()] if normalised else [layer, nn.ReLU()]
        found.append(nn.Sequential(*modules[:-1]).eval())
    return found


def _double(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array.astype(np.float64))


@pytest.mark.parametrize(("rule", "kind"), [(RULE, Naive), (CROSSQ, NaiveCrossq)])
def test_gradient_steps_are_those_of_a_naive_version_in_float64(
    rule: SacHyperparameters, kind: type[Naive]
) -> None:
    made = learner(rule)
    made.add([trajectory(0), trajectory(1)])
    arrays, _ = made.state()
    naive = kind(arrays, rule)
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(np.array(arrays["generator"])))
    owed = 2 * STEPS - RULE.learning_starts
    choices = torch.rand((owed, 32), dtype=torch.float64, generator=generator).numpy()
    noises = torch.randn((owed, 2, 32, ACTION), generator=generator).double()
    rows = made.replay.drawn(choices).astype(np.float64)
    stats = made.update().stats
    assert stats["gradient_steps"] == owed
    for minibatch, noise in zip(rows, noises, strict=True):
        naive.step(minibatch, noise)
    found, _ = made.state()
    for name, modules in (
        ("policy", [naive.policy]),
        ("critics", naive.critics),
        *([] if rule is CROSSQ else [("targets", naive.targets)]),
    ):
        expected = torch.cat([p.detach().flatten() for m in modules for p in m.parameters()])
        torch.testing.assert_close(_double(found[name]), expected, rtol=2e-4, atol=2e-5)
    log_alpha = naive.log_alpha.detach()
    torch.testing.assert_close(_double(found["temperature"]), log_alpha, rtol=1e-4, atol=0.0)
    assert not made.ready
    # Actors have no normalisation of their own: it is in the weights.
    policy = load_policy(*made.policy_payload())
    observation = np.random.default_rng(0).standard_normal((50, OBSERVATION), np.float32)
    with torch.no_grad():
        mean = naive.policy(torch.from_numpy(observation).double())[:, :ACTION]
    np.testing.assert_allclose(policy.mode(observation), torch.tanh(mean), atol=1e-4)


@pytest.mark.parametrize("rule", [RULE, CROSSQ])
def test_a_resumed_learner_goes_on_to_the_last_bit(rule: SacHyperparameters) -> None:
    whole = learner(rule)
    whole.add([trajectory(0), trajectory(1)])
    whole.update()
    resumed = restored(whole, rule)
    for each in (whole, resumed):
        each.advance(1)
        each.add([trajectory(2, policy_version=1)])
        each.update()
    assert_same_state(whole, resumed)
    assert np.array_equal(whole.replay.between(0, 72), resumed.replay.between(0, 72))


def test_it_owes_a_gradient_step_for_each_step_behind_the_first_ones() -> None:
    rule = RULE.model_copy(update={"updates_per_step": 2.5, "learning_starts": 40})
    made = learner(rule)
    made.add([trajectory(0)])
    assert not made.ready
    assert made.policy_payload()[1]["sampling"] == "uniform"
    with pytest.raises(RuntimeError, match="owed"):
        made.update()
    made.add([trajectory(i) for i in range(1, 3)])
    taken = list[float]()
    while made.ready:
        taken.append(made.update().stats["gradient_steps"])
    assert taken == [CHUNK, 80 - CHUNK]
    assert "sampling" not in made.policy_payload()[1]


@pytest.mark.parametrize(
    ("learning_starts", "updates_per_step"),
    [(40, 1.0), (2 * STEPS, 1.0), (40, 0.02), (0, 0.02)],
)
def test_a_version_is_never_published_with_two_contents(
    learning_starts: int, updates_per_step: float
) -> None:
    """Each round is opened with the version of that moment, which rises only with an update."""
    rule = RULE.model_copy(
        update={"learning_starts": learning_starts, "updates_per_step": updates_per_step}
    )
    made, version, published = learner(rule), 0, dict[int, bytes]()
    for index in range(6):
        for each in (made, restored(made, rule)):
            content = codec.encode(*each.policy_payload())
            assert published.setdefault(version, content) == content
        uniform = made.policy_payload()[1].get("sampling") == "uniform"
        assert uniform == (version == 0 and learning_starts > 0)
        made.add([trajectory(index, policy_version=version)])
        while made.ready:
            made.update()
            version += 1
            made.advance(version)
    assert version > 0


@pytest.mark.parametrize("rule", [RULE, CROSSQ])
def test_a_step_that_is_not_finite_is_left_out_and_told(rule: SacHyperparameters) -> None:
    made = learner(rule)
    broken = trajectory(0)
    made.add([broken.replaced(reward=np.full_like(broken.reward, np.inf))])
    before = copy.deepcopy(made.state()[0])
    with pytest.raises(FloatingPointError, match="learning_rate"):
        made.update()
    for name, found in made.state()[0].items():
        assert not name.startswith("critics") or np.array_equal(found, before[name])


@pytest.mark.parametrize("rule", [RULE, CROSSQ])
def test_a_huge_number_spoils_only_the_steps_that_see_it(rule: SacHyperparameters) -> None:
    made = learner(rule.model_copy(update={"replay_capacity": 2 * STEPS}))
    huge = trajectory(0)
    huge.observation[3, 0, 0] = 1e21  # its square overflows, also averaged over a minibatch
    made.add([huge, trajectory(1)])
    stats = made.update().stats
    assert 0 < stats["skipped_steps"] < stats["gradient_steps"]
    made.add([trajectory(2), trajectory(3)])  # the replay forgets the huge number
    assert made.update().stats["skipped_steps"] == 0
    for found in (made.state()[0], made.policy_payload()[0]):
        assert all(np.isfinite(array).all() for array in found.values())


def test_another_job_begins_with_its_networks() -> None:
    earlier = learner()
    earlier.add([trajectory(0), trajectory(1)])
    earlier.update()
    begun = learner(seed=8)
    begun.begin_from(*earlier.state(), optimiser=False)
    arrays, earlier_arrays = begun.state()[0], earlier.state()[0]
    for name in ("policy", "critics", "targets", "temperature"):
        assert np.array_equal(arrays[name], earlier_arrays[name])
    assert not arrays["policy.adam_exp_avg"].any()
    with pytest.raises(ValueError, match="wrong arrays"):
        begun.begin_from({"network.policy.0.weight": np.zeros(3)}, {}, optimiser=False)


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="continuous"):
        Sac(DISCRETE, RULE, seed=0)
