"""A policy in the actors' form: dense layers or an ONNX graph, and an action distribution.

Actors have no torch, so a policy is sent as named arrays (`shared.policy.numpy_policy`). Its
network is either linear layers with tanh or ReLU between them, over vectors, or the ONNX graph of a
custom module, over vectors or images, with

| actions | network outputs | distribution |
|---|---|---|
| continuous, A numbers | A, besides a free `log_std` | Gaussian, state-independent deviation |
| continuous, A numbers | 2A: means, then log-standard deviations | Gaussian, state-dependent |
| one of n | n logits | categorical |
| several choices | their logits, concatenated | a categorical each |

Legend: `F` observation size, `A` action size, `H` network outputs.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nitro.errors import CommandError
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)
from shared.policy.blocks import Graph
from shared.policy.head import PolicyError
from shared.policy.network_metadata import GRAPH, sized_metadata
from shared.policy.numpy_policy import NumpyPolicy, load_policy, with_actions
from shared.policy.spec import POLICY_FORMAT
from shared.trajectory import codec

Float32 = NDArray[np.float32]
Activation = Literal["tanh", "relu"]
ActionMapping = Literal["clip", "rescale"]
SUPPORTED = (
    "supported are linear layers with tanh or ReLU between them and nothing after the last one, "
    "over vectors, with Gaussian or categorical actions"
)
"""Description of policies without a graph."""


class PolicyNotSupportedError(CommandError):
    """Actors cannot run a module or weights as a policy; names the reason and the alternatives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGraph:
    """A custom network: from `observation` [N, *obs] to `outputs` [N, H], both float32."""

    block: Graph
    onnx: bytes
    module: Any
    """The same in torch on the CPU, for differentiation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """Weights of one policy, copied: later changes of a module have no effect.

    Attributes:
        weights: Of each linear layer [out, in] float32, as torch lays them out.
        biases: Of each linear layer [out] float32.
        graph: A whole network in place of layers, as ONNX.
        log_std: Free log-standard deviations [A] float32; None for discrete actions, or if the
            network outputs them.
        activation: Between layers: `tanh` or `relu`.
        action_mapping: Mapping of continuous actions to the environment's bounds. `clip`: they are
            clipped. `rescale`: [-1, 1] is mapped onto the bounds first. Batches always have the
            action before this mapping, to which its log-probability belongs.
        observation_mean: Subtracted from observations [F] float32; None leaves them as they are.
        observation_scale: Factor after the subtraction [F] float32, above 0: one over the standard
            deviation.
        observation_clip: Bound after scaling: values are clipped to [-clip, clip].
    """

    weights: tuple[Float32, ...] = ()
    biases: tuple[Float32, ...] = ()
    graph: OwnGraph | None = None
    log_std: Float32 | None = None
    activation: Activation = "tanh"
    action_mapping: ActionMapping = "clip"
    observation_mean: Float32 | None = None
    observation_scale: Float32 | None = None
    observation_clip: float = 10.0

    def __post_init__(self) -> None:
        """Copy the arrays.

        Raises:
            PolicyNotSupportedError: A mean is given without a scale, or vice versa.
        """
        if (self.observation_mean is None) != (self.observation_scale is None):
            raise PolicyNotSupportedError(
                "observation_mean and observation_scale: give both, or neither"
            )
        for name in ("weights", "biases"):
            copies = tuple(np.array(each, np.float32) for each in getattr(self, name))
            object.__setattr__(self, name, copies)
        for name in ("log_std", "observation_mean", "observation_scale"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, np.array(given, np.float32))

    def numpy(self, environment: EnvironmentSpec) -> NumpyPolicy:
        """Return the policy as in actors of an environment, with `act`, `sample` and `log_prob`.

        Raises:
            PolicyNotSupportedError: It does not fit the environment, or is not finite.
        """
        arrays, metadata = self.payload(environment)
        try:
            policy = load_policy(arrays, with_actions(metadata, environment.action))
        except PolicyError as error:
            raise PolicyNotSupportedError(f"the policy cannot be used: {error}") from error
        if policy.observation_shape != environment.observation.shape:
            raise PolicyNotSupportedError(
                f"the policy takes observations of shape {policy.observation_shape}, but "
                f"{environment.env_id} gives {environment.observation.shape}"
            )
        return policy

    def encoded(self, environment: EnvironmentSpec) -> bytes:
        """Return the policy's bytes for actors.

        Raises:
            PolicyNotSupportedError: It does not fit the environment, or is not finite.
        """
        self.numpy(environment)
        return codec.encode(*self.payload(environment))

    def seen(self, observations: NDArray[Any], environment: EnvironmentSpec) -> NDArray[Any]:
        """Return the network's input for observations [..., F], normalised if the policy does."""
        scale = self.numpy(environment).observation_scale
        if scale is None:
            return observations
        rows = np.ascontiguousarray(observations, np.float32).reshape(-1, scale.size)
        return scale.apply(rows, out=np.empty_like(rows)).reshape(observations.shape)

    def payload(
        self, environment: EnvironmentSpec
    ) -> tuple[dict[str, codec.Array], dict[str, str]]:
        """Return the arrays and metadata for actors (see `shared.policy.spec`).

        Raises:
            PolicyNotSupportedError: It does not fit the environment.
        """
        arrays, network = self._network(environment)
        metadata = {
            "format": POLICY_FORMAT,
            **network,
            "action_mapping": self.action_mapping,
            **self._head(environment.action),
            **({"mask": "yes"} if environment.mask_size else {}),
        }
        if metadata["log_std"] == "free" and self.log_std is not None:
            arrays["log_std"] = self.log_std.reshape(-1)
        if self.observation_mean is not None and self.observation_scale is not None:
            arrays["observation_mean"] = self.observation_mean
            arrays["observation_scale"] = self.observation_scale
            metadata["observation_clip"] = repr(float(self.observation_clip))
        return arrays, metadata

    def _network(
        self, environment: EnvironmentSpec
    ) -> tuple[dict[str, codec.Array], dict[str, str]]:
        """Return the arrays and metadata of the network alone."""
        if self.graph is not None:
            block = self.graph.block
            graph: codec.Array = np.frombuffer(self.graph.onnx, np.uint8)
            return {GRAPH: graph}, sized_metadata("onnx", block.observation_shape, block.outputs)
        if environment.observation.is_image:
            raise PolicyNotSupportedError(
                f"{environment.env_id} gives images {environment.observation.shape}: {SUPPORTED}"
            )
        arrays: dict[str, codec.Array] = {}
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays[f"policy.{i}.weight"], arrays[f"policy.{i}.bias"] = weight, bias
        return arrays, {"network": "mlp", "activation": self.activation}

    @property
    def _num_outputs(self) -> int:
        if self.graph is not None:
            return self.graph.block.outputs
        return self.weights[-1].shape[0] if self.weights else 0

    def _head(self, action: ActionSpec) -> dict[str, str]:
        """Return the metadata of the outputs, given the environment's actions."""
        outputs = self._num_outputs
        if isinstance(action, ContinuousActionSpec):
            return self._gaussian(len(action.low), outputs)
        choices = (action.n,) if isinstance(action, DiscreteActionSpec) else action.num_choices
        if outputs != sum(choices):
            raise PolicyNotSupportedError(
                f"the last layer has {outputs} outputs, and the environment {choices} choices: "
                f"expected {sum(choices)} logits"
            )
        if isinstance(action, DiscreteActionSpec):
            return {"distribution": "categorical", "log_std": "none"}
        listed = ",".join(map(str, choices))
        return {"distribution": "multi_categorical", "log_std": "none", "num_choices": listed}

    def _gaussian(self, size: int, outputs: int) -> dict[str, str]:
        if self.log_std is not None and (outputs, self.log_std.size) == (size, size):
            return {"distribution": "gaussian", "log_std": "free"}
        if self.log_std is None and outputs == 2 * size:
            return {"distribution": "gaussian", "log_std": "state_dependent"}
        free = "no log_std" if self.log_std is None else f"a log_std of {self.log_std.size}"
        raise PolicyNotSupportedError(
            f"the last layer has {outputs} outputs beside {free}, and the environment {size} "
            f"actions: expected {size} outputs beside a log_std of {size}, or {2 * size} outputs "
            "(means, then log-standard deviations) without one; there are no squashed Gaussians"
        )
