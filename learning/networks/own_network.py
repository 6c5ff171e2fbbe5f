"""A user's own network, trained like Nitro's and published as an ONNX graph.

A job names it, and never anything to import: the learner was started with what makes it. It is a
torch module with two submodules, which may share layers:

| submodule | from observations # [N, *obs] | to |
|---|---|---|
| `actor` | float32; images from 0 to 255 | outputs # [N, H] |
| `critic` | the same | state values # [N] or [N, 1] |

Free log-standard deviations are the learner's, not the module's. It always runs in evaluation mode,
so that the policy that learns is the policy that acts.

Legend: N samples; H outputs of the policy's last layer; A action size.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.networks.autograd_network import AutogradActorCritic
from learning.networks.onnx_export import onnx_graph, traced
from shared.contracts.environment_spec import EnvironmentSpec
from shared.policy.network_metadata import GRAPH
from shared.policy.spec import PolicySpec

Maker = Callable[[EnvironmentSpec], object]
"""Makes a module for an environment; its weights are its own first ones."""
MAKERS: dict[str, Maker] = {}
"""Networks that this process was started with, by the names that jobs use."""


def build_own_network(
    name: str, environment: EnvironmentSpec, spec: PolicySpec, *, seed: int
) -> "OwnActorCritic":
    """Return a job's network of its own, the same for the same seed.

    Raises:
        ValueError: This process was not started with it, or it makes no such module.
    """
    if name not in MAKERS:
        raise ValueError(
            f"hyperparameters.network: {name!r} is not known to this learner: give nitro.train its "
            "`network`, or start the learner with NITRO_NETWORKS"
        )
    with _generators_seeded(seed):
        module = MAKERS[name](environment)
    return OwnActorCritic(_checked(name, module), spec, is_image=environment.observation.is_image)


class OwnActorCritic(AutogradActorCritic):
    """Policy and value function of a module; its own parameters lie in the flat buffer."""

    is_ours = False

    def __init__(self, module: nn.Module, spec: PolicySpec, *, is_image: bool) -> None:
        """Take the module over.

        Raises:
            ValueError: Its outputs or values are not what the spec says.
        """
        super().__init__(spec, ())
        self.own = module.eval()
        actors = set(self.own.get_submodule("actor").parameters())
        self._actors = {name for name, each in self.named_parameters() if each in actors}
        self.requires_grad_(False)
        self.flatten()
        self._require_shapes()
        shape = spec.observation_shape
        _, self._graph = onnx_graph(self.own.get_submodule("actor"), shape, is_image=is_image)

    def flatten(
        self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        """Move the module's constants as well."""
        self._traced_at: Tensor | None = None
        """Parameters that the graph holds: a policy is published and saved between two updates."""
        super().flatten(dtype, device)
        for buffer in self.buffers():
            buffer.data = buffer.to(device, dtype if buffer.is_floating_point() else buffer.dtype)

    def forward(self, observation: Tensor, parts: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Return the outputs of submodules for observations."""
        seen = observation.to(self.flat.dtype)
        return tuple(self.own.get_submodule(part)(seen) for part in parts)

    def both_at(
        self, parameters: Mapping[str, Tensor], observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the state values # [N]."""
        outputs, values = self._of(parameters, observation, "actor", "critic")
        return outputs, values.reshape(len(observation))

    def outputs_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D] that these parameters give."""
        (outputs,) = self._of(parameters, observation, "actor")
        return self.completed(outputs, observation, parameters.get("log_std"))

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these parameters give."""
        (values,) = self._of(parameters, observation, "critic")
        return values.reshape(len(observation))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the graph of the actor, and free deviations."""
        if self._traced_at is None or not torch.equal(self._traced_at, self.flat):
            self._graph = traced(self.own.get_submodule("actor"), self.spec.observation_shape)
            self._traced_at = self.flat.clone()
        free = {} if self.log_std is None else {"log_std": self.log_std.cpu().numpy().copy()}
        return {**free, GRAPH: np.frombuffer(self._graph, np.uint8)}

    def is_of_policy(self, name: str) -> bool:
        """Say whether a parameter is the actor's, or the free deviations."""
        return name == "log_std" or name in self._actors

    def _of(
        self, parameters: Mapping[str, Tensor], observation: Tensor, *parts: str
    ) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.func.functional_call(
            self, dict(parameters), (observation, parts)
        )
        return found

    def _require_shapes(self) -> None:
        seen = torch.zeros(2, *self.spec.observation_shape)
        with torch.no_grad():
            outputs, values = self(seen, ("actor", "critic"))
        size = self.spec.head.num_outputs
        if outputs.shape != (2, size) or values.shape not in ((2,), (2, 1)):
            raise ValueError(
                f"hyperparameters.network: for observations {tuple(seen.shape)} the actor gives "
                f"{tuple(outputs.shape)} and the critic {tuple(values.shape)}, expected (2, {size})"
                " and (2, 1)"
            )


@contextmanager
def _generators_seeded(seed: int) -> Iterator[None]:
    """Seed the global generators that a module may draw its weights from, and put them back."""
    python, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one
    torchs = torch.default_generator.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - as above
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpys)  # noqa: NPY002 - as above
        torch.default_generator.set_state(torchs)


def _checked(name: str, module: Any) -> nn.Module:
    """Return a module that can be learned.

    Raises:
        ValueError: It cannot.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"hyperparameters.network: {name} makes no torch module")
    for part in ("actor", "critic"):
        if not isinstance(getattr(module, part, None), nn.Module):
            raise ValueError(f"hyperparameters.network: {name} has no submodule {part!r}")
    for path, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            raise ValueError(
                f"hyperparameters.network: {name} has {type(part).__name__} at {path}, whose "
                "statistics are no parameters; use LayerNorm or GroupNorm"
            )
    return module
