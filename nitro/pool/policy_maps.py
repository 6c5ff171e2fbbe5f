"""Finds the policy among a module's weights by name: torch modules and arrays to `Policy`.

A map names the policy's layers in order. `"actor"` may name a linear layer or a `Sequential`;
`"actor_mean|actor"` selects the first existing name. There are maps for other libraries:

| map | of | layers | log_std |
|---|---|---|---|
| `sequential` | `nn.Sequential` | itself | |
| `cleanrl` | CleanRL's agents | `actor_mean` or `actor` | `actor_logstd` |
| `sb3` | Stable-Baselines3's `MlpPolicy` | `mlp_extractor.policy_net`, `action_net` | `log_std` |
| `rllib` | RLlib's default model | `encoder.actor_encoder.net.mlp`, `pi.net.mlp` | `pi.log_std` |

A torch module contains its activations; for a dictionary of arrays the map names them. If the named
parts are other layers, their composition becomes an ONNX graph, which needs the packages onnx and
onnxruntime.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nitro.pool.own_network import graph_of
from nitro.pool.policy import SUPPORTED, ActionMapping, Activation, Policy, PolicyNotSupportedError
from shared.contracts.environment_spec import EnvironmentSpec
from shared.policy.head import PolicyError

if TYPE_CHECKING:
    from torch import nn

_ACTIVATIONS: dict[str, Activation] = {"Tanh": "tanh", "ReLU": "relu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMap:
    """Names of a policy's parts among the weights of a module, or in a dictionary of arrays.

    Attributes:
        layers: Names of linear layers, or of a `Sequential` of them, in order. `a|b` selects `a`,
            or else `b`. The empty name is the module itself.
        log_std: Name of the free log-standard deviations, A numbers in any shape; omitted if there
            are none.
        activation: Activation between the layers, for a dictionary of arrays.
        action_mapping: Mapping of continuous actions to the environment's bounds: `clip` or
            `rescale`.
    """

    layers: tuple[str, ...]
    log_std: str | None = None
    activation: Activation = "tanh"
    action_mapping: ActionMapping = "clip"


POLICY_MAPS: Mapping[str, PolicyMap] = {
    "sequential": PolicyMap(layers=("",), log_std="log_std"),
    "cleanrl": PolicyMap(layers=("actor_mean|actor",), log_std="actor_logstd"),
    "sb3": PolicyMap(layers=("mlp_extractor.policy_net", "action_net"), log_std="log_std"),
    "rllib": PolicyMap(
        layers=("encoder.actor_encoder.net.mlp|encoder.encoder.net.mlp", "pi.net.mlp"),
        log_std="pi.log_std",
        action_mapping="rescale",
    ),
}
"""Ready maps by name."""

Module = Any
"""A holder of a policy's weights: a torch module, a mapping of names to arrays, or a `Policy`."""


def named_map(policy_map: PolicyMap | str | None) -> PolicyMap:
    """Return a map by its name; None means `sequential`.

    Raises:
        PolicyNotSupportedError: There is no such map.
    """
    if isinstance(policy_map, PolicyMap):
        return policy_map
    name = policy_map or "sequential"
    if name not in POLICY_MAPS:
        raise PolicyNotSupportedError(
            f"policy_map: must be a nitro.PolicyMap or one of {', '.join(POLICY_MAPS)}, got "
            f"{policy_map!r:.80}"
        )
    return POLICY_MAPS[name]


def policy_of(
    module: Module,
    policy_map: PolicyMap | str | None = None,
    *,
    environment: EnvironmentSpec | None = None,
) -> Policy:
    """Return a copy of the policy in a module or its weights.

    Args:
        module: A torch module, a mapping of names to arrays or tensors (such as a `state_dict`), or
            a `Policy`, which is returned as it is.
        policy_map: Where the policy is in it: a map, or the name of a predefined one. Default:
            `sequential`, for an `nn.Sequential` and its `state_dict`.
        environment: The environment of a module with other layers; None allows only layers that
            NumPy runs.

    Raises:
        PolicyNotSupportedError: A name is missing, or actors cannot run a part.
    """
    if isinstance(module, Policy):
        return module
    chosen = named_map(policy_map)
    if isinstance(module, Mapping):
        return _policy(module, chosen)
    if not hasattr(module, "get_submodule"):
        raise PolicyNotSupportedError(
            "expected a torch module, a mapping of names to arrays or a nitro.Policy, got "
            f"{type(module).__name__}"
        )
    _require_no_memory(module)
    parts = [part for wanted in chosen.layers for part in _parts(module, wanted)]
    try:
        activation = _activation(parts)
    except PolicyNotSupportedError:
        if environment is None:
            raise
        return _graph_policy(module, chosen, environment)
    return _policy(module.state_dict(), replace(chosen, activation=activation))


def _require_no_memory(module: "nn.Module") -> None:
    """Refuse a module with any recurrent layers: a map may not name them."""
    for name, layer in module.named_modules():
        if any(kind.__name__ in ("RNNBase", "RNNCellBase") for kind in type(layer).__mro__):
            raise PolicyNotSupportedError(
                f"{name} is {type(layer).__name__}: actors would act without what it remembers. "
                "Nitro's own jobs have recurrent policies: their field hyperparameters.recurrent"
            )


def _graph_policy(module: "nn.Module", chosen: PolicyMap, environment: EnvironmentSpec) -> Policy:
    """Return the policy of a module's named parts of any kind, in sequence."""
    observation = environment.observation
    parts = [_place(module, wanted)[1] for wanted in chosen.layers]
    try:
        graph = graph_of(parts, observation.shape, is_image=observation.is_image)
    except PolicyError as error:
        raise PolicyNotSupportedError(f"the policy cannot be published: {error}") from error
    return Policy(
        graph=graph,
        log_std=_log_std(module.state_dict(), chosen),
        action_mapping=chosen.action_mapping,
    )


def _policy(state: Mapping[str, Any], chosen: PolicyMap) -> Policy:
    names = [name for wanted in chosen.layers for name in _linear_names(state, wanted)]
    weights = tuple(_array(state[f"{name}weight"]) for name in names)
    biases = tuple(
        _array(state[f"{name}bias"]) if f"{name}bias" in state else _zeros(weight)
        for name, weight in zip(names, weights, strict=True)
    )
    return Policy(
        weights=weights,
        biases=biases,
        log_std=_log_std(state, chosen),
        activation=chosen.activation,
        action_mapping=chosen.action_mapping,
    )


def _log_std(state: Mapping[str, Any], chosen: PolicyMap) -> Any:
    """Return the free log-standard deviations [A]; None without any."""
    found = [name for name in (chosen.log_std or "").split("|") if name in state]
    return _array(state[found[0]]).reshape(-1) if found else None


def _linear_names(state: Mapping[str, Any], wanted: str) -> list[str]:
    """Return the name prefixes of a place's linear layers, in order."""
    for place in wanted.split("|"):
        prefix = f"{place}." if place else ""
        if place and f"{prefix}weight" in state:
            return [prefix]
        form = re.compile(re.escape(prefix) + r"(\d+)\.weight")
        numbers = sorted(int(match[1]) for name in state if (match := form.fullmatch(name)))
        if numbers:
            return [f"{prefix}{number}." for number in numbers]
    raise PolicyNotSupportedError(
        f"there are no layers {wanted or '0, 1, ...'!r} among the weights "
        f"{sorted(map(str, state))!r:.300}: give policy_map, a nitro.PolicyMap of their names"
    )


def _activation(parts: "Sequence[tuple[str, nn.Module]]") -> Activation:
    """Return the activation between layers, given all parts by name.

    Raises:
        PolicyNotSupportedError: The parts are not linear layers with the same activation.
    """
    kinds = [type(part).__name__ for _, part in parts]
    between: set[Activation] = set()
    for i, ((name, _), kind) in enumerate(zip(parts, kinds, strict=True)):
        if kind != "Linear" and kind not in _ACTIVATIONS:
            raise PolicyNotSupportedError(f"{name} is {kind}: {SUPPORTED}")
        if (kind == "Linear") != (i % 2 == 0):
            raise PolicyNotSupportedError(
                f"{name} ({kind}) is out of order in {', '.join(kinds)}: {SUPPORTED}"
            )
        if kind != "Linear":
            between.add(_ACTIVATIONS[kind])
    if len(parts) % 2 == 0:
        raise PolicyNotSupportedError(f"{', '.join(kinds)} end with no linear layer: {SUPPORTED}")
    if len(between) > 1:
        raise PolicyNotSupportedError(f"{' and '.join(sorted(between))} are mixed: {SUPPORTED}")
    return next(iter(between), "tanh")


def _parts(module: "nn.Module", wanted: str) -> "Iterator[tuple[str, nn.Module]]":
    """Yield a place's layers and activations by name."""
    place, found = _place(module, wanted)
    if type(found).__name__ == "Sequential":
        for name, part in found.named_children():
            yield f"{place}.{name}".lstrip("."), part
    else:
        yield place or type(found).__name__, found


def _place(module: "nn.Module", wanted: str) -> "tuple[str, nn.Module]":
    """Return the first of a place's names that the module has, with its submodule."""
    for place in wanted.split("|"):
        try:
            return place, module.get_submodule(place)
        except AttributeError:
            continue
    raise PolicyNotSupportedError(
        f"{type(module).__name__} has no {wanted!r}: give policy_map, a nitro.PolicyMap of the "
        "names of its policy's layers"
    )


def _array(value: Any) -> Any:
    """Return an array or tensor as a new float32 array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.array(value, np.float32)


def _zeros(weight: Any) -> Any:
    return np.zeros(weight.shape[0], np.float32)
