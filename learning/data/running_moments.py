"""Mean and variance of all data so far, updated batch by batch.

Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances", Stanford STAN-CS-79-773, 1979, section 2: the result is that of one pass over
everything, up to rounding in float64.

Legend: N rows; F numbers per row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningMoments:
    """The moments of `count` rows; never changed in place."""

    count: NDArray[np.int64]  # []
    mean: NDArray[np.float64]  # [F]
    m2: NDArray[np.float64]  # [F], sum of the squared distances from the mean

    @classmethod
    def empty(cls, size: int) -> Self:
        """Return the moments of no rows of `size` numbers."""
        return cls(count=np.zeros((), np.int64), mean=np.zeros(size), m2=np.zeros(size))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]], *, prefix: str = "") -> Self:
        """Return what `arrays` returned; in `arrays` names begin with `prefix`.

        Raises:
            ValueError: The count or a squared distance is negative, or a number is not finite.
        """
        count = np.array(arrays[f"{prefix}count"], np.int64)
        mean, m2 = (np.array(arrays[prefix + name], np.float64) for name in ("mean", "m2"))
        if count < 0 or not np.isfinite(mean).all() or not np.isfinite(m2).all() or (m2 < 0).any():
            raise ValueError("running moments must be finite, with count and m2 not negative")
        return cls(count=count, mean=mean, m2=m2)

    @property
    def variance(self) -> NDArray[np.float64]:
        """Population variance # [F]; 1 before the first row."""
        return self.m2 / self.count if self.count else np.ones_like(self.m2)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of the three fields by name."""
        return {"count": self.count.copy(), "mean": self.mean.copy(), "m2": self.m2.copy()}

    def including(self, rows: NDArray[np.floating]) -> Self:
        """Return the moments of the rows so far and these # [N, F] together."""
        if not len(rows):
            return self
        exact = rows.astype(np.float64)
        mean = exact.mean(axis=0)
        return self.joined(len(rows), mean, np.square(exact - mean).sum(axis=0))

    def joined(self, num_rows: int, mean: NDArray[np.float64], m2: NDArray[np.float64]) -> Self:
        """Return the moments of the rows so far and of others with these moments, # [F] each."""
        count = self.count + num_rows
        share, step = num_rows / count, mean - self.mean
        return type(self)(
            count=np.asarray(count, np.int64),
            mean=self.mean + step * share,
            m2=self.m2 + m2 + np.square(step) * (self.count * share),
        )
