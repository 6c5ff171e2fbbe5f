"""The scheduler's networks while they are trained: the only part of it that needs torch.

Two MLPs of two tanh layers, one for the choice and one for the value of a state, trained as the
published MinionsRL agent is: Adam at 1e-3, Monte-Carlo returns at a discount of 0.99, smooth L1 on
the value at half weight, an entropy bonus of 0.01. It makes one pass per episode, at which PPO's
probability ratio is 1 throughout: its clip at 0.2 never acts and the surrogate is the plain policy
gradient.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from shared.contracts.minions_agent import (
    MAX_NUMBERS,
    STATE_SIZE,
    DenseLayer,
    MinionsAgent,
    SchedulerState,
)

HIDDEN = 64
LEARNING_RATE = 1e-3
DISCOUNT = 0.99
VALUE_COEFFICIENT = 0.5
ENTROPY_COEFFICIENT = 0.01
MAX_CHOICES = (MAX_NUMBERS - HIDDEN * (STATE_SIZE + 1) - HIDDEN * (HIDDEN + 1)) // (HIDDEN + 1)
"""Outputs for which the agent is still small enough to be sent with a job."""
_DIGITS = 6
"""Significant digits of a weight in the file."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread for a while: for networks this small the others only get in the way.

    Beside real runs they would also take the cores that actors need.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class MinionsTrainer:
    """Agent and critic, improved by one whole episode at a time.

    Args:
        num_choices: The largest number of actors that can be chosen.
        scales: What each number of the state is divided by # [STATE_SIZE].
        seed: Of the first weights; equal seeds and episodes give equal agents.
    """

    def __init__(self, *, num_choices: int, scales: Sequence[float], seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._actor = _mlp(num_choices)
            self._critic = _mlp(1)
        self._scales = torch.tensor(scales)  # [STATE_SIZE]
        parameters = [*self._actor.parameters(), *self._critic.parameters()]
        self._optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)

    def agent(self) -> MinionsAgent:
        """Return the present agent as data."""
        linear = [layer for layer in self._actor if isinstance(layer, nn.Linear)]
        return MinionsAgent(
            scales=tuple(self._scales.tolist()),
            layers=tuple(
                DenseLayer(weights=_rows(layer.weight), biases=_rows(layer.bias.unsqueeze(0))[0])
                for layer in linear
            ),
        )

    def learn(
        self, states: Sequence[SchedulerState], choices: Sequence[int], rewards: Sequence[float]
    ) -> float:
        """Take one step on an episode; return the loss before it.

        Args:
            states: Before each round.
            choices: Actors drawn, 1 and up.
            rewards: Of each round.
        """
        # The same bounds as in use: `choice_probabilities` clamps what is far off its scale.
        state = (torch.tensor([s.vector for s in states]) / self._scales).clamp(-50, 50)  # [T, 8]
        action = torch.tensor(choices) - 1  # [T]
        returns = torch.tensor(discounted(rewards))  # [T]
        log_probs = functional.log_softmax(self._actor(state), dim=-1)  # [T, num_choices]
        chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)  # [T]
        entropy = -(log_probs.exp() * log_probs).sum(dim=-1)  # [T]
        value = self._critic(state).squeeze(-1)  # [T]
        advantage = returns - value.detach()
        loss: Tensor = (
            -(chosen * advantage).mean()
            + VALUE_COEFFICIENT * functional.smooth_l1_loss(value, returns)
            - ENTROPY_COEFFICIENT * entropy.mean()
        )
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()
        return loss.item()


def discounted(rewards: Sequence[float]) -> list[float]:
    """Return the Monte-Carlo return of each round, `G_t = r_t + 0.99 G_{t+1}`."""
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + DISCOUNT * following
        returns.append(following)
    return returns[::-1]


def _mlp(num_outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(STATE_SIZE, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, num_outputs),
    )


def _rows(matrix: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.{_DIGITS}g}") for value in row) for row in matrix.tolist())
