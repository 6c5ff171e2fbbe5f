"""`nitro.train` with a network of one's own, through one real training run and its end."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from torch import nn

import nitro
from nitro.runs.export import export_run

_SMALL: dict[str, Any] = {
    "samples_per_round": 256,
    "scaling": "fixed:2",
    "evaluation": {"every_rounds": 1, "episodes": 2},
}
_OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self, environment):
        super().__init__()
        trunk = nn.Sequential(nn.Linear(*environment.observation.shape, 16), nn.SiLU())
        self.actor = nn.Sequential(trunk, nn.LayerNorm(16), nn.Linear(16, environment.action.n))
        self.critic = nn.Sequential(trunk, nn.Linear(16, 1))
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[nn.Module]]:
    """A network in a file beside the script, where no other process would look for it."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "my_net.py").write_text(_OWN)
    sys.path.insert(0, str(folder))
    from my_net import Net  # type: ignore[import-not-found]

    yield Net
    sys.path.remove(str(folder))


def test_it_is_trained_resumed_evaluated_and_exported(net: type[nn.Module], tmp_path: Path) -> None:
    small = {**_SMALL, "hyperparameters": {"num_epochs": 2}}
    first = nitro.train("CartPole-v1", rounds=2, seed=1, runs_dir=tmp_path, network=net, **small)
    assert first.job.spec.hyperparameters["network"] == "own/my_net.Net"
    assert first.job.spec.hyperparameters["num_epochs"] == 2
    seen = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    before = first.policy.outputs(seen)
    typed = ["-c", "from nitro.cli.main import main; main()", "train", "--resume", first.job_id]
    more_rounds = ["--rounds", "3", "--runs-dir", str(tmp_path)]
    subprocess.run([sys.executable, *typed, *more_rounds], check=True)
    resumed = nitro.load(first.folder)
    assert not np.array_equal(before, resumed.policy.outputs(seen))
    assert [line.plan.round for line in resumed.rounds if line.result is not None] == [0, 1, 2]
    assert len(resumed.evaluate(episodes=2).returns) == 2
    told = export_run(resumed.folder, tmp_path / "out")
    assert told.files == ("policy.safetensors", "policy.json", "policy.onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "out" / "policy.onnx", providers=["CPUExecutionProvider"]
    )
    (actions,) = session.run(None, {"observation": seen})
    np.testing.assert_array_equal(actions, resumed.policy.act(seen))


def test_what_no_learner_could_make_is_refused_before_anything_starts(
    net: type[nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(nitro.CommandError, match="^network: .* got Linear: give the class itself"):
        nitro.train("CartPole-v1", network=nn.Linear(4, 2), runs_dir=tmp_path)
    with pytest.raises(nitro.CommandError, match="^network: .*not at the top level"):
        nitro.train("CartPole-v1", network=lambda its: its, runs_dir=tmp_path)
    with pytest.raises(nitro.CommandError, match="--network: is for a local system"):
        nitro.train("CartPole-v1", network=net, api_url="http://127.0.0.1:9", runs_dir=tmp_path)
    for algorithm in ("sac", "crossq", "ars", "es"):
        told = r"hyperparameters\.network: no such field; network is for ppo, impact, impala$"
        with pytest.raises(nitro.CommandError, match=told):
            nitro.train("Pendulum-v1", network=net, algorithm=algorithm, runs_dir=tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(nitro.CommandError, match="needs onnxruntime: pip install"):
        nitro.train("CartPole-v1", network=net, runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())
