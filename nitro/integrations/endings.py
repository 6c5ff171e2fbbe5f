"""The ends of episodes in a batch, with their returns, for callbacks."""

from dataclasses import dataclass

import numpy as np

from nitro.pool.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of one episode."""

    step: int
    column: int
    episode_return: float
    """Undiscounted return of the whole episode, including its part in earlier batches."""
    length: int


def endings(batch: Batch) -> list[Ending]:
    """Return the ends of a batch's episodes, by actor and then by time.

    Empty if episodes are lives: returns are of whole games and belong to no single end.
    """
    steps, columns = np.nonzero(batch.terminated | batch.truncated)
    if len(steps) != len(batch.returns):
        return []
    places = {actor: i for i, actor in enumerate(dict.fromkeys(batch.actors.tolist()))}
    place = np.array([places[actor] for actor in batch.actors[columns].tolist()], np.int64)
    order = np.lexsort((columns, steps, place))
    return [
        Ending(
            step=int(steps[i]),
            column=int(columns[i]),
            episode_return=float(episode_return),
            length=int(length),
        )
        for i, episode_return, length in zip(order, batch.returns, batch.lengths, strict=True)
    ]
