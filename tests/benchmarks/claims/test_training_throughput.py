from pathlib import Path

import pytest

from benchmarks.claims.training_throughput import if_installable
from benchmarks.peers.interpreters import RLLIB, SAMPLE_FACTORY, Peer


@pytest.mark.parametrize("peer", [SAMPLE_FACTORY, RLLIB])
def test_a_peer_that_cannot_be_had_is_left_out_and_named(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(peer.variable, str(tmp_path / "python"))
    assert if_installable(peer, "Hopper-v4") == {}
    told = capsys.readouterr().err
    assert f"{peer.name} is left out: {peer.variable} is" in told.replace("\n", " ")
