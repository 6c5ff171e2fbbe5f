"""How contestants are measured: in turn, after a warm-up, in one run."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Sampler = Callable[[], float]
"""Measures once and returns the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    quick: bool
    """A smoke run: it shows that everything works, its numbers mean nothing."""

    def of(self, full: int, *, quick: int = 2) -> int:
        """Return how often to do something."""
        return quick if self.quick else full


def interleaved(
    samplers: Mapping[str, Sampler], *, repeats: int, warm_up: bool = True
) -> dict[str, tuple[float, ...]]:
    """Sample all contestants in turn, A B C A B C ..., and return their samples by name.

    What slows the machine down for a while then slows all of them down alike.

    Args:
        samplers: Name to sampler; run in this order.
        repeats: Samples of each.
        warm_up: Take one sample of each before and throw it away.
    """
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    if warm_up:
        for sampler in samplers.values():
            sampler()
    for repeat in range(repeats):
        progress(f"  sample {repeat + 1} of {repeats}", transient=True)
        for name, sampler in samplers.items():
            samples[name].append(sampler())
    return {name: tuple(taken) for name, taken in samples.items()}


def seconds(action: Callable[[], object], *, times: int = 1) -> float:
    """Return the mean wall time of one `action`, over `times` in a row."""
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


def progress(text: str, *, transient: bool = False) -> None:
    """Say on standard error what is going on.

    Args:
        text: One line.
        transient: Only worth showing to somebody who watches.
    """
    watched = sys.stderr.isatty()
    if transient and not watched:
        return
    clear, end = ("\r\x1b[K", "" if transient else "\n") if watched else ("", "\n")
    sys.stderr.write(clear + text + end)
    sys.stderr.flush()
