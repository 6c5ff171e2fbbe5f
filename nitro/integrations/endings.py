"""Which episodes ended where in a batch, with their returns: what callbacks want to be told."""

from dataclasses import dataclass

import numpy as np

from nitro.pool.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of one episode."""

    step: int
    column: int
    episode_return: float
    """Undiscounted, of the whole episode, whichever batch it began in."""
    length: int


def endings(batch: Batch) -> list[Ending]:
    """Return where the episodes of a batch ended, actor by actor, in the order they ended.

    Where episodes are lives, returns are of games and belong to no single end: then there are none.
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
