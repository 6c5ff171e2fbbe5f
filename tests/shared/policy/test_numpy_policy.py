"""NumPy policies against torch's networks and distributions."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shared.contracts.environment_spec import ContinuousActionSpec, DiscreteActionSpec
from shared.policy.fragment_sampler import FragmentSampler
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import NumpyPolicy, halved, load_policy, with_actions
from shared.policy.spec import POLICY_FORMAT
from shared.trajectory import codec

Kind = Literal["state_dependent", "free", "none"]
Arrays = dict[str, NDArray[np.generic]]
KINDS: tuple[Kind, ...] = ("state_dependent", "free", "none")


def _f32(values: object) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def _metadata(kind: Kind) -> dict[str, str]:
    return {
        "format": POLICY_FORMAT,
        "network": "mlp",
        "activation": "tanh",
        "distribution": "categorical" if kind == "none" else "gaussian",
        "log_std": kind,
    }


class _Oracle:
    """The same policy in torch, in float64: what the learner trains."""

    def __init__(self, kind: Kind, *, hidden: tuple[int, ...] = (256, 256), actions: int = 3):
        generator = torch.Generator().manual_seed(1)
        outputs = 2 * actions if kind == "state_dependent" else actions
        sizes = (11, *hidden, outputs)
        self.kind, self.arrays = kind, Arrays()
        layers: list[torch.nn.Module] = []
        for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:], strict=False)):
            layer = torch.nn.Linear(n_in, n_out)
            torch.nn.init.normal_(layer.weight, std=n_in**-0.5, generator=generator)
            torch.nn.init.normal_(layer.bias, std=0.1, generator=generator)
            self.arrays[f"policy.{i}.weight"] = layer.weight.detach().numpy().copy()
            self.arrays[f"policy.{i}.bias"] = layer.bias.detach().numpy().copy()
            layers += [layer.double(), torch.nn.Tanh()]
        self.network = torch.nn.Sequential(*layers[:-1])
        self.log_std = torch.linspace(-1, 0.5, actions)
        if kind == "free":
            self.arrays["log_std"] = self.log_std.numpy().copy()

    def distribution(self, observation: NDArray[np.float32]) -> torch.distributions.Distribution:
        outputs = self.network(torch.from_numpy(observation).double())
        if self.kind == "none":
            return torch.distributions.Categorical(logits=outputs)
        if self.kind == "free":
            mean, log_std = outputs, self.log_std.double()
        else:
            mean, log_std = outputs.chunk(2, dim=-1)
        return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)

    def log_prob(
        self, observation: NDArray[np.float32], action: NDArray[np.generic]
    ) -> NDArray[np.float64]:
        with torch.no_grad():
            log_prob = self.distribution(observation).log_prob(torch.from_numpy(action.copy()))
        return np.asarray(log_prob.numpy(), np.float64)

    def policy(self) -> NumpyPolicy:
        return load_policy(self.arrays, _metadata(self.kind))


def _observations(*leading: int) -> NDArray[np.float32]:
    return np.random.default_rng(2).standard_normal((*leading, 11), dtype=np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [(256, 256), (8,), ()])
@pytest.mark.parametrize("leading", [(), (1,), (7,), (5, 3)])
def test_outputs_modes_and_log_probs_equal_torchs(
    kind: Kind, hidden: tuple[int, ...], leading: tuple[int, ...]
) -> None:
    oracle = _Oracle(kind, hidden=hidden)
    policy, observation = oracle.policy(), _observations(*leading)
    with torch.no_grad():
        outputs = oracle.network(torch.from_numpy(observation).double()).numpy()
        mode = oracle.distribution(observation).mode.numpy()
    np.testing.assert_allclose(policy.outputs(observation), outputs, rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(policy.mode(observation), mode, rtol=1e-6, atol=2e-6)
    action, log_prob = policy.sample(observation, np.random.default_rng(0))
    assert action.shape == (*leading, *policy.action_shape)
    expected = oracle.log_prob(observation, action)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(log_prob, policy.log_prob(observation, action))
    again, _ = policy.sample(observation, np.random.default_rng(0))
    np.testing.assert_array_equal(action, again)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_fragment_is_sampled_step_by_step_with_its_own_noise(kind: Kind, num_envs: int) -> None:
    oracle = _Oracle(kind)
    policy, observation = oracle.policy(), _observations(20, num_envs)
    rng = np.random.default_rng(0)
    sampler = FragmentSampler(policy, num_steps=20, num_envs=num_envs, rng=rng)
    for t in range(20):
        sampler.act(t, observation[t])
    assert sampler.action.dtype == (np.int64 if kind == "none" else np.float32)
    at_once, _ = policy.sample(observation, np.random.default_rng(0))
    np.testing.assert_allclose(sampler.action, at_once, rtol=1e-5, atol=1e-5)
    expected = oracle.log_prob(observation, sampler.action)
    np.testing.assert_allclose(sampler.log_prob(), expected, rtol=1e-6, atol=1e-5)


def test_an_observation_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"shape \(2, 10\), expected \(..., 11\)"):
        _Oracle("free").policy().mode(np.zeros((2, 10), np.float32))


def _change(name: str, value: NDArray[np.generic]) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.update({name: value})


def _normalise(size: int = 11, scale: float = 1.0) -> Callable[[Arrays], object]:
    statistics = {
        "observation_mean": np.zeros(size, np.float32),
        "observation_scale": np.full(size, scale, np.float32),
    }
    return lambda arrays: arrays.update(statistics)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("none", lambda arrays: arrays.clear(), "holds arrays"),
        ("none", lambda arrays: arrays.pop("policy.1.bias"), "holds arrays"),
        ("none", _change("value.0.weight", np.zeros((1, 1), np.float32)), "holds arrays"),
        ("none", _change("policy.0.weight", np.zeros((8, 11))), "dtype float64"),
        (
            "none",
            _change("policy.1.weight", np.zeros((3, 9), np.float32)),
            "policy.1.weight has shape",
        ),
        ("none", _change("policy.1.weight", np.zeros(3, np.float32)), "policy.1.weight has shape"),
        ("none", _change("policy.0.bias", np.zeros(9, np.float32)), "policy.0.bias has shape"),
        ("none", _change("policy.0.bias", np.full(8, np.nan, np.float32)), "is not finite"),
        ("free", lambda arrays: arrays.pop("log_std"), "holds arrays"),
        ("free", _change("log_std", np.zeros(4, np.float32)), r"log_std has shape \(4,\)"),
        ("free", _change("log_std", np.full(3, np.inf, np.float32)), "'log_std' is not finite"),
        ("none", _change("log_std", np.zeros(3, np.float32)), "holds arrays"),
        ("none", _change("observation_mean", np.zeros(11, np.float32)), "holds arrays"),
        ("none", _change("observation_scale", np.ones(11, np.float32)), "holds arrays"),
        ("none", _normalise(size=10), r"observation_mean has shape \(10,\), expected \(11,\)"),
        ("none", _normalise(scale=0.0), "observation_scale must be above 0"),
    ],
)
def test_arrays_that_make_no_policy_are_refused(
    kind: Kind, change: Callable[[Arrays], object], message: str
) -> None:
    arrays = _Oracle(kind, hidden=(8,)).arrays
    change(arrays)
    with pytest.raises(PolicyError, match=message):
        load_policy(arrays, _metadata(kind) | {"observation_clip": "10.0"})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "nitro-policy/2", "format is 'nitro-policy/2'"),
        ("network", "cnn", "network is 'cnn'"),
        ("activation", "gelu", "activation is 'gelu'"),
        ("distribution", "beta", "'beta/free'"),
        ("log_std", "none", "'gaussian/none'"),
        ("log_std", "state_dependent", "3 outputs cannot be split"),
        ("action_mapping", "squash", "action_mapping is 'squash'"),
        *(("observation_clip", text, f"clip '{text}'") for text in ("", "much", "nan", "-1")),
        ("action_low", "-2.0,-2.0,-2.0", "action_"),  # and no action_high
    ],
)
def test_metadata_of_another_kind_is_refused(field: str, value: str, message: str) -> None:
    arrays = _Oracle("free", hidden=(8,)).arrays
    _normalise()(arrays)
    if value == "state_dependent":
        del arrays["log_std"]
    with pytest.raises(PolicyError, match=message):
        load_policy(arrays, _metadata("free") | {"observation_clip": "10.0", field: value})


@pytest.mark.parametrize("kind", KINDS)
def test_halves_are_half_as_long_and_nearly_the_same_policy(kind: Kind) -> None:
    oracle, observation = _Oracle(kind), _observations(7)
    halves = halved(oracle.arrays)
    whole = codec.encode(oracle.arrays, _metadata(kind))
    sent = codec.encode(halves, _metadata(kind))
    assert len(sent) < 0.6 * len(whole)
    policy = load_policy(codec.decode(sent).arrays, _metadata(kind))
    expected = oracle.policy().outputs(observation)
    np.testing.assert_allclose(policy.outputs(observation), expected, atol=5e-3)
    assert policy.outputs(observation).dtype == np.float32
    scale = {"observation_mean": np.zeros(11, np.float16)}
    with pytest.raises(PolicyError, match="'observation_mean' has dtype float16"):
        load_policy({**halves, **scale}, _metadata(kind))


def test_later_changes_of_the_arrays_do_not_reach_the_policy() -> None:
    oracle, observation = _Oracle("free"), _observations(2)
    policy = oracle.policy()
    before = policy.mode(observation)
    for array in oracle.arrays.values():
        array[...] = 0
    np.testing.assert_array_equal(policy.mode(observation), before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_policy_that_normalises_sees_the_same_observations_everywhere(
    kind: Kind, num_envs: int
) -> None:
    oracle, observation = _Oracle(kind), 5 + 3 * _observations(20, num_envs)
    mean, scale = np.full(11, 5, np.float32), np.full(11, 1 / 3, np.float32)
    arrays = oracle.arrays | {"observation_mean": mean, "observation_scale": scale}
    policy = load_policy(arrays, _metadata(kind) | {"observation_clip": "1.5"})
    seen = np.clip((observation - mean) * scale, -1.5, 1.5)
    plain = oracle.policy()

    np.testing.assert_array_equal(policy.outputs(observation), plain.outputs(seen))
    sampler, expected = (
        FragmentSampler(p, num_steps=20, num_envs=num_envs, rng=np.random.default_rng(0))
        for p in (policy, plain)
    )
    for t in range(20):
        sampler.act(t, observation[t])
        expected.act(t, seen[t])
    np.testing.assert_array_equal(sampler.action, expected.action)
    np.testing.assert_array_equal(sampler.log_prob(), expected.log_prob())


def test_several_choices_are_loaded_with_how_many_each_has() -> None:
    arrays = _Oracle("none", hidden=(8,)).arrays
    metadata = _metadata("none") | {"distribution": "multi_categorical"}
    num_outputs = len(arrays["policy.1.bias"])
    policy = load_policy(arrays, metadata | {"num_choices": f"1,{num_outputs - 1}"})
    assert policy.distribution.num_choices == (1, num_outputs - 1)
    for text in ("", "2", f"0,{num_outputs}", f"1,{num_outputs}", "1,-1", "1;2", "1" * 400):
        with pytest.raises(PolicyError, match="num_choices is"):
            load_policy(arrays, metadata | {"num_choices": text})


BOUNDED: Arrays = {
    "policy.0.weight": np.zeros((2, 3), np.float32),
    "policy.0.bias": _f32([-0.048, 7.0]),
    "log_std": np.zeros(2, np.float32),
}


@pytest.mark.parametrize(
    ("given", "mapping", "first"),
    [({}, "rescale", -0.096), ({"action_mapping": "clip"}, "clip", -0.048)],
)
def test_acting_maps_to_the_bounds(given: dict[str, str], mapping: str, first: float) -> None:
    """Pendulum's torque lies between -2 and 2."""
    metadata = _metadata("free") | given
    observation = np.zeros(3, np.float32)
    unbounded = load_policy(BOUNDED, metadata)
    assert unbounded.action_mapping == mapping
    with pytest.raises(PolicyError, match="action_low and action_high"):
        unbounded.act(observation)
    box = ContinuousActionSpec(low=(-2.0, -2.0), high=(2.0, 2.0))
    action = load_policy(BOUNDED, with_actions(metadata, box)).act(observation)
    np.testing.assert_allclose(action, _f32([first, 2.0]), rtol=1e-6, strict=True)


def test_choices_have_the_environments_own_numbers() -> None:
    arrays = _Oracle("none", hidden=(8,)).arrays
    metadata = _metadata("none") | {"distribution": "categorical"}
    observation = np.linspace(-1, 1, arrays["policy.0.weight"].shape[1], dtype=np.float32)
    plain = load_policy(arrays, metadata)
    n = len(arrays["policy.1.bias"])
    moved = load_policy(arrays, with_actions(metadata, DiscreteActionSpec(n=n, start=-7)))
    assert moved.act(observation) == plain.act(observation) - 7
    np.testing.assert_array_equal(moved.mode(observation), plain.mode(observation))
    for text in ("", "1,2", "x", "1.5", str(10**30)):
        with pytest.raises(PolicyError, match="action_start is"):
            load_policy(arrays, metadata | {"action_start": text})
    with pytest.raises(PolicyError, match="action_start is"):
        load_policy(BOUNDED, _metadata("free") | {"action_start": "1,1"})


@pytest.mark.parametrize("low", ["", "-2.0", "-2.0,x", "3.0,-2.0", "nan,-2.0"])
def test_bounds_that_are_none_are_refused(low: str) -> None:
    with pytest.raises(PolicyError, match="action_"):
        load_policy(BOUNDED, {**_metadata("free"), "action_low": low, "action_high": "2.0,2.0"})
