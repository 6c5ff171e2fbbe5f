"""Times of a round's gradients: invocation, fetch, computation, push."""

from dataclasses import dataclass, field

from shared.gradients.messages import GradientMessage


@dataclass(slots=True)
class GradientTimes:
    """Sums of seconds over the arrived calls."""

    num: int = 0
    sums: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("invoke_s", "fetch_s", "compute_s", "push_s"), 0.0)
    )

    def add(self, message: GradientMessage, asked_at: float, now: float) -> None:
        """Add a gradient with the Unix seconds of its request and arrival."""
        done_at = message.started_at + message.fetch_s + message.compute_s
        # Clocks of two machines: a difference may be negative.
        seconds = {
            "invoke_s": max(0.0, message.started_at - asked_at),
            "fetch_s": message.fetch_s,
            "compute_s": message.compute_s,
            "push_s": max(0.0, now - done_at),
        }
        self.num += 1
        for name, value in seconds.items():
            self.sums[name] += value

    def means(self) -> dict[str, float]:
        """Return the mean seconds of each part of a call, by its name in `GradientRecord`."""
        return {name: value / max(1, self.num) for name, value in self.sums.items()}
