import importlib.metadata
import sys
from pathlib import Path

import pytest

from benchmarks.peers.contestant import Contestant, ContestantError
from benchmarks.peers.interpreters import (
    EVOTORCH,
    RLLIB,
    SAMPLE_FACTORY,
    STABLE_BASELINES3,
    Peer,
    PeerError,
    PeerSettings,
    if_installable,
    peer_python,
)

ECHO = """
import json, os, sys
print(json.dumps({"version": os.environ["GREETING"]}), flush=True)
for line in sys.stdin:
    print(json.dumps({"steps": len(line.strip()), "seconds": 0.5}), flush=True)
"""


def script(text: str) -> list[str]:
    return [sys.executable, "-I", "-c", text]


def test_measures_once_per_request() -> None:
    with Contestant(script(ECHO), variables={"GREETING": "hello"}) as contestant:
        assert contestant.about == {"version": "hello"}
        assert contestant.measure("four").steps_per_s == 8.0
        assert contestant.measure().steps == len("measure")


def test_one_that_ends_is_reported_with_its_errors() -> None:
    failing = "import sys; print('{}', flush=True); input(); sys.exit('no module named sb3')"
    with (
        Contestant(script(failing)) as contestant,
        pytest.raises(ContestantError, match="no module named sb3"),
    ):
        contestant.measure()


def test_one_that_does_not_start_is_reported_with_its_errors() -> None:
    with (
        pytest.raises(ContestantError, match="nothing works"),
        Contestant(script("import sys; sys.exit('nothing works')")),
    ):
        pass


def test_one_that_does_not_answer_in_time_is_ended() -> None:
    with (
        pytest.raises(ContestantError, match="did not answer within 1 s"),
        Contestant(script("print('{}', flush=True); input(); input()"), patience_s=1.0) as silent,
    ):
        silent.measure()


@pytest.mark.parametrize("answer", ["steps", "[1]", '{"steps": 0, "seconds": 1}', '{"steps": 1}'])
def test_nonsense_is_refused(answer: str) -> None:
    talking = f"print('{{}}', flush=True); input(); print({answer!r}, flush=True); input()"
    with (
        Contestant(script(talking)) as contestant,
        pytest.raises(ContestantError, match=r"said|answered"),
    ):
        contestant.measure()


def test_named_interpreter_is_used(tmp_path: Path) -> None:
    settings = PeerSettings(NITRO_PEERS_PYTHON=Path(sys.executable))
    assert peer_python(settings, environment=tmp_path / "unused") == Path(sys.executable)
    assert not (tmp_path / "unused").exists()


def test_named_interpreter_must_exist(tmp_path: Path) -> None:
    settings = PeerSettings(NITRO_PEERS_PYTHON=tmp_path / "python")
    with pytest.raises(PeerError, match=r"NITRO_PEERS_PYTHON is .*python, which is no file"):
        peer_python(settings, environment=tmp_path)


def test_environment_that_was_made_before_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "installed.txt").write_text(
        "\n".join(STABLE_BASELINES3.requirements()), encoding="utf-8"
    )
    python = peer_python(PeerSettings(NITRO_PEERS_PYTHON=None), environment=tmp_path)
    assert python == tmp_path / "bin" / "python"


def test_peers_get_our_versions_without_local_suffix() -> None:
    installed = importlib.metadata.version("gymnasium")
    assert f"gymnasium[mujoco]=={installed}" in STABLE_BASELINES3.requirements()
    assert "torch==2.13.0" in STABLE_BASELINES3.requirements()
    assert "stable-baselines3==2.9.2" in STABLE_BASELINES3.requirements()


@pytest.mark.parametrize("peer", [SAMPLE_FACTORY, RLLIB, EVOTORCH])
def test_every_peer_has_an_environment_and_a_variable_of_its_own(
    tmp_path: Path, peer: Peer
) -> None:
    settings = PeerSettings.model_validate({peer.variable: Path(sys.executable)})
    assert peer_python(settings, environment=tmp_path, peer=peer) == Path(sys.executable)
    missing = PeerSettings.model_validate({peer.variable: tmp_path / "python"})
    with pytest.raises(PeerError, match=rf"{peer.variable} is .*, which is no file"):
        peer_python(missing, environment=tmp_path, peer=peer)
    assert peer.script.is_file()
    assert "torch==2.13.0" in peer.requirements()


@pytest.mark.parametrize("peer", [SAMPLE_FACTORY, RLLIB, EVOTORCH])
def test_a_peer_that_cannot_be_had_is_left_out_and_named(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(peer.variable, str(tmp_path / "python"))
    assert if_installable(peer, "Hopper-v4") == {}
    told = capsys.readouterr().err
    assert f"{peer.name} is left out: {peer.variable} is" in told.replace("\n", " ")
