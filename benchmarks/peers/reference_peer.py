"""The same seeds trained by Stable-Baselines3, for environments nobody has published returns of."""

import json
import subprocess
from pathlib import Path
from statistics import fmean

from benchmarks.peers.interpreters import PeerSettings, peer_python
from benchmarks.records.reference import LAST_EPISODES, PeerSeed

_SCRIPT = Path(__file__).with_name("stable_baselines3_reference.py")


def train_peer(env_id: str, *, steps: int, seed: int, folder: Path) -> PeerSeed:
    """Train one seed of the preset `standard`, or read what came of it before.

    Args:
        env_id: Environment.
        steps: Of the run.
        seed: Of the run.
        folder: Where finished runs are kept.

    Raises:
        RuntimeError: The peer failed, or no training episode ended.
    """
    kept = folder / f"stable-baselines3-{env_id.replace('/', '-')}-{steps}-{seed}.json"
    if kept.is_file():
        return PeerSeed.model_validate_json(kept.read_bytes())
    # -I: neither our packages nor the user's can shadow the peer's.
    command = [str(peer_python(PeerSettings())), "-I", str(_SCRIPT), env_id, str(steps), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the peer ended with {done.returncode}; its words stand above")
    answer = json.loads(done.stdout)
    if not answer["returns"]:
        raise RuntimeError(f"the peer's seed {seed}: no training episode ended")
    found = PeerSeed(
        seed=seed,
        final_return=fmean(answer["returns"][-LAST_EPISODES:]),
        episodes=len(answer["returns"]),
        about=answer["about"],
    )
    kept.write_text(found.model_dump_json() + "\n", encoding="utf-8")
    return found
