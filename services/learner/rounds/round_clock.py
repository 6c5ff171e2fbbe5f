"""The duration of each stage of a round."""

import time

from shared.contracts.rounds import RoundTiming


class RoundClock:
    """A stop-watch that runs through all rounds."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Book the time since the last lap to a stage."""
        now = time.perf_counter()
        self._laps[stage] = self._laps.get(stage, 0.0) + now - self._last
        self._last = now

    def take(self) -> RoundTiming:
        """Return the laps since the last take."""
        laps, self._laps = self._laps, {}
        stages = dict.fromkeys(RoundTiming.model_fields, 0.0) | laps
        return RoundTiming.model_validate({**stages, "total_s": sum(laps.values())})
