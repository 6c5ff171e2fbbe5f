"""Random schedules of faults against the real processes: `python -m tests.campaign --help`."""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import get_args

from tests.campaign.play import Outcome, Stage, play, undisturbed_digests
from tests.campaign.schedule import Algorithm, Campaign, draw

LONGEST_WAIT_S = 10.0
_EPILOG = """examples:
  python -m tests.campaign --schedules 20
  python -m tests.campaign --schedules 200 --seed 7 --jobs 2
  python -m tests.campaign --schedules 200 --seed 7 --resume   # go on where it was interrupted
  python -m tests.campaign --schedules 3 --algorithm sac --strikes 20
  python -m tests.campaign --only 17 --seed 7                  # play one of them again
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Play schedules and tell what came of them; return 0 when everything held, else 1."""
    options = _parser().parse_args(argv)
    campaign = Campaign(seed=options.seed, algorithm=options.algorithm, strikes=options.strikes)
    folder: Path = (options.out or Path("runs") / campaign.name).resolve()
    if folder.exists() and not options.resume and options.only is None:
        sys.stderr.write(f"{folder} exists: add --resume to go on with it, or name another --out\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    indices = range(options.schedules) if options.only is None else [options.only]
    outcomes = []
    for outcome in _outcomes(folder, campaign, indices, jobs=options.jobs):
        outcomes.append(outcome)
        _say(f"{len(outcomes):4}/{len(indices)}  {_line(outcome)}")
    _say(summary(outcomes))
    return int(any(outcome.bad for outcome in outcomes) or _longest_s(outcomes) > LONGEST_WAIT_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description="Ends processes of local systems at random moments of small jobs. Checks that "
        "no job is lost, nothing used or launched twice, no budget exceeded, weights are those "
        "of undisturbed runs, and every job goes on within 10 seconds of a restart.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--schedules", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn from (default: 0)")
    parser.add_argument("--algorithm", choices=get_args(Algorithm), help="default: ppo or impact")
    parser.add_argument("--strikes", type=int, help="faults of each schedule (default: 1 to 3)")
    parser.add_argument("--jobs", type=int, default=1, help="played at a time (default: 1)")
    parser.add_argument("--only", type=int, help="play only the schedule of this number")
    parser.add_argument("--resume", action="store_true", help="keep outcomes that are there")
    parser.add_argument(
        "--out", type=Path, help="folder (default: one in runs, named after the options)"
    )
    return parser


def _outcomes(
    folder: Path, campaign: Campaign, indices: Sequence[int], *, jobs: int
) -> Iterator[Outcome]:
    digests = _references(folder, campaign)
    missing = []
    for index in indices:
        done = _file(folder, index)
        if done.is_file() and len(indices) > 1:
            yield Outcome.model_validate_json(done.read_bytes())
        else:
            missing.append(index)
    with ThreadPoolExecutor(jobs) as pool:
        playing = [pool.submit(_played, folder, campaign, index, digests) for index in missing]
        try:
            for played in as_completed(playing):
                yield played.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _played(folder: Path, campaign: Campaign, index: int, digests: dict[int, str]) -> Outcome:
    schedule = draw(campaign, index)
    place = folder / f"schedule-{index:06}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    with Stage(place, learners=schedule.learners) as stage:
        outcome = play(schedule, stage, digests)
    _file(folder, index).write_text(outcome.model_dump_json(indent=1))
    if not outcome.bad:
        shutil.rmtree(place)  # its logs are of interest only where something did not hold
    return outcome


def _references(folder: Path, campaign: Campaign) -> dict[int, str]:
    """Return digests of undisturbed runs, which are made once for a folder."""
    known = folder / "references.json"
    if not known.is_file():
        with Stage(folder / "references") as stage:
            known.write_text(json.dumps(undisturbed_digests(stage, campaign)))
    return {int(seed): digest for seed, digest in json.loads(known.read_text()).items()}


def _file(folder: Path, index: int) -> Path:
    return folder / f"schedule-{index:06}.json"


def _longest_s(outcomes: Sequence[Outcome]) -> float:
    return max((wait for outcome in outcomes for wait in outcome.waits_s), default=0.0)


def _line(outcome: Outcome) -> str:
    verdict = "BAD" if outcome.bad else "ok "
    waits = " ".join(f"{wait:.1f}" for wait in outcome.waits_s)
    return (
        f"{verdict} {outcome.index:4} {outcome.algorithm:6} {outcome.took_s:5.1f} s  "
        f"waits [{waits}]  {'; '.join(outcome.strikes)}" + (f"  {outcome.lost or ''}")
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return a table of everything that must hold."""
    rows = (
        ("schedules", len(outcomes)),
        ("restarts", sum(len(outcome.waits_s) for outcome in outcomes)),
        ("jobs lost", sum(outcome.lost is not None for outcome in outcomes)),
        ("trajectories used twice", sum(outcome.used_twice for outcome in outcomes)),
        ("actors launched twice", sum(outcome.launched_twice for outcome in outcomes)),
        ("over budget", sum(outcome.over_budget_usd > 0 for outcome in outcomes)),
        ("unequal weights", sum(outcome.equal_weights is False for outcome in outcomes)),
        ("late lines in a ledger", sum(outcome.late_usd > 0 for outcome in outcomes)),
        ("lost evaluations", sum(outcome.lost_evaluations for outcome in outcomes)),
        ("compared weights", sum(outcome.equal_weights is not None for outcome in outcomes)),
        ("failed and resumed", sum(outcome.resumes for outcome in outcomes)),
        ("longest wait after a restart (s)", f"{_longest_s(outcomes):.1f}"),
    )
    return "\n".join(f"{name:34}{value:>8}" for name, value in rows)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
