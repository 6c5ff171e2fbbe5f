"""The recurrent actor-critic network: dense layers, recurrent cells, and a head each.

Policy and value share the layers up to the cells, as RLlib's networks with `use_lstm` do, so that
one state serves both. It is unrolled over sequences of rows. A row holds all inputs of its outputs,
except for the rows before it::

    fresh | state | observation

Where `fresh` is not 0, the state is the row's own; elsewhere it is the state after the row before.
The first row of a sequence has a state of its own in any case. Derivatives reach
back to the beginning of a sequence, or of an episode in it (truncated backpropagation through
time).

Legend: n sequences of L steps; N = n L samples; S numbers of a state; O numbers of an observation;
R = 1 + S + O; U recurrent units.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from learning.networks.autograd_network import AutogradActorCritic
from learning.networks.blocks import forward
from learning.networks.unrolling import unrolled
from shared.policy.blocks import Block
from shared.policy.spec import PolicySpec


class RecurrentActorCritic(AutogradActorCritic):
    """Policy and value over sequences of rows # [n, L, R], or over rows alone # [N, R]."""

    is_ours = False  # a recording of all steps of time would be long

    def __init__(self, spec: PolicySpec, value: Sequence[Block]) -> None:
        """Lay the network out: see `ActorCritic`. The value's blocks see the cells' outputs."""
        assert spec.recurrent is not None, "of a recurrent policy"
        self._cells = spec.recurrent
        self._encoder, self._head = spec.blocks[:-2], spec.blocks[-1:]
        self._value_blocks = tuple(value)
        super().__init__(spec, value)

    def both_at(
        self, parameters: Mapping[str, Tensor], observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the state values # [N]."""
        return self._of(parameters, self.states_at(parameters, observation))

    def outputs_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D] that these parameters give."""
        raw, _ = self.both_at(parameters, observation)
        return self.completed(raw, observation, parameters.get("log_std"))

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these parameters give."""
        return self.both_at(parameters, observation)[1]

    def completed(self, raw: Tensor, observation: Tensor, log_std: Tensor | None = None) -> Tensor:
        """Return the last layer's output # [N, H] as the distribution's parameters # [N, D]."""
        return super().completed(raw, observation.reshape(len(raw), -1), log_std)

    def evaluated(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the present parameters make of sequences # [n, L, R], without a graph.

        Returns:
            The distribution parameters # [n, L, D], the values # [n, L], and the state that each
            row leaves # [n, L, S].
        """
        parameters, shape = dict(self.named_parameters()), rows.shape[:2]
        with torch.no_grad():
            states = self.states_at(parameters, rows)
            raw, values = self._of(parameters, states)
            outputs = self.completed(raw, rows)
        return outputs.view(*shape, -1), values.view(shape), states

    def states_at(self, parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """Return the state that each row leaves # [n, L, S]."""
        sequences = rows.unsqueeze(1) if rows.ndim == 2 else rows
        cells, units = self._cells, self._cells.units
        sizes = [1, cells.state_size, *self.spec.observation_shape]
        fresh, own, seen = torch.split(sequences, sizes, 2)
        *before, core, _ = self.layers("policy", parameters)
        encoded = forward(self._encoder, before, seen.flatten(0, 1))
        of_input, of_state = torch.split(core.weight, [cells.inputs, units], 1)
        given = functional.linear(encoded, of_input, core.bias).view(*sequences.shape[:2], -1)
        return unrolled(cells, given, of_state, fresh=fresh, own=own)

    def _of(self, parameters: Mapping[str, Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the values # [N] at states after a step."""
        remembered = states[..., : self._cells.units].flatten(0, 1)
        raw = forward(self._head, self.layers("policy", parameters)[-1:], remembered)
        values = forward(self._value_blocks, self.layers("value", parameters), remembered)
        return raw, values.squeeze(1)
