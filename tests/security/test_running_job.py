"""Attacks on a job that runs, and what its traces give away, in the real processes."""

import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import zstandard

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.cache.client import TrajectoryCache
from shared.contracts.jobs import Job
from tests.e2e.runs import tiny, wait_finished, wait_until
from tests.nitro.process_table import children
from tests.patience import ANSWER_S

HUNDRED_GB = 100 * 10**9
MEMORY_BOUND_MB = 400.0
"""What refused messages may add to the learner: above the decoder's 256 MiB, far below 100 GB."""


@dataclass
class Intruded:
    """A system in which somebody reached the cache."""

    system: LocalSystem
    client: NitroClient
    cache: TrajectoryCache
    runs_dir: Path
    job: Job
    grown_mb: float


def frame(raw: bytes) -> bytes:
    """Compress as the codec does."""
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True)
    return compressor.compress(raw)


def shape_of_100_gb() -> bytes:
    """A well-formed frame around a header that claims an observation of 100 GB."""
    count = HUNDRED_GB // 4
    entry = {"dtype": "F32", "shape": [count], "data_offsets": [0, HUNDRED_GB]}
    header = json.dumps({"observation": entry, "__metadata__": {"format": "x"}}).encode()
    return frame(len(header).to_bytes(8, "little") + header)


def frame_of_100_gb() -> bytes:
    """A frame that says it decompresses to 100 GB."""
    # RFC 8878: magic, descriptor (8-byte size, checksum), window of 1 KiB, size, an empty block.
    head = b"\x28\xb5\x2f\xfd" + bytes([0b11000100]) + b"\x00" + struct.pack("<Q", HUNDRED_GB)
    return head + b"\x01\x00\x00" + b"\x00" * 4


def bomb() -> bytes:
    """A few kilobytes that really decompress to just below what is allowed."""
    return frame(b"\x00" * (255 * 2**20))


PAYLOADS = {0: shape_of_100_gb(), 1: frame_of_100_gb(), 2: bomb(), 3: b"\x80\x04cos\nsystem\n."}


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@pytest.fixture(scope="module")
def intruded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Intruded]:
    runs_dir = tmp_path_factory.mktemp("runs")
    settings = {"scaler": {"NITRO_QUORUM_SHARE": "0.25"}}
    with ExitStack() as stack:
        system = stack.enter_context(LocalSystem(runs_dir, environment=settings))
        client = stack.enter_context(NitroClient(system.api_url, system.token))
        cache = stack.enter_context(TrajectoryCache(system.cache_url))
        spec = tiny(
            scaling={"policy": "fixed", "num_actors": 8},
            evaluation={"every_rounds": 0},
            stop={"max_rounds": 3},
        )
        wait_finished(client, client.submit(spec).job_id)
        before_mb = peak_mb(system.pid("learner"))
        operator = stack.enter_context(
            httpx.Client(
                base_url=system.lambda_url,
                headers={"Authorization": f"Bearer {system.lambda_token}"},
                timeout=ANSWER_S,
            )
        )
        assert operator.put("/emulator/faults", json={"start_delay_ms": 5000.0}).is_success
        job_id = client.submit(spec).job_id
        wait_until(
            client,
            job_id,
            lambda _: operator.get("/emulator/stats").json()["in_flight"] == 8,
            system,
        )
        for index, payload in PAYLOADS.items():
            stored = cache.store_result(
                job_id, 0, mode="sample", actor_index=index, payload=payload
            )
            assert stored == "stored"
        assert operator.put("/emulator/faults", json={}).is_success
        job = wait_finished(client, job_id)
        grown_mb = peak_mb(system.pid("learner")) - before_mb
        yield Intruded(system, client, cache, runs_dir, job, grown_mb)


def test_what_claims_100_gb_is_refused_and_counted_and_the_job_goes_on(intruded: Intruded) -> None:
    assert intruded.job.status == "succeeded"
    lines = (intruded.runs_dir / intruded.job.job_id / "rounds.jsonl").read_text().splitlines()
    results = [json.loads(line)["result"] for line in lines]
    counts = [result["trajectories"] for result in results if result is not None]
    # The true results of these four came second and are counted as such.
    assert (counts[0]["launched"], counts[0]["used"]) == (8, 4)
    assert counts[0]["used"] + counts[0]["late"] + counts[0]["lost"] == 8
    assert [c["used"] for c in counts[1:]] == [8, 8]


def test_every_refusal_is_logged_with_its_reason(intruded: Intruded) -> None:
    log = (intruded.system.logs / "learner.log").read_text()
    assert log.count("result refused") == len(PAYLOADS)
    assert "at most 268435456 allowed" in log
    assert "do not fit shape" in log or "but 0 follow the header" in log
    assert "not a zstd frame" in log


def test_the_learners_memory_stays_bounded(intruded: Intruded) -> None:
    assert intruded.grown_mb < MEMORY_BOUND_MB


def test_the_token_is_in_no_log_no_artifact_and_no_answer(intruded: Intruded) -> None:
    token = intruded.system.token.encode()
    token_file = intruded.system.token_path
    for path in intruded.runs_dir.rglob("*"):
        if path.is_file() and path != token_file:
            assert token not in path.read_bytes(), path
    assert token_file.stat().st_mode & 0o077 == 0
    job_id = intruded.job.job_id
    headers = {"Authorization": f"Bearer {intruded.system.token}"}
    with httpx.Client(base_url=intruded.system.api_url, headers=headers, timeout=ANSWER_S) as http:
        for url in ("/v1/jobs", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/rounds", "/metrics"):
            answer = http.get(url)
            assert answer.status_code == 200
            assert token not in answer.content


def test_the_token_is_on_no_command_line_and_not_with_the_actors(intruded: Intruded) -> None:
    token = intruded.system.token.encode()
    servers = {name: intruded.system.pid(name) for name in intruded.system.names}
    actors = children(servers["emulator"])
    assert actors
    for pid in {*servers.values(), *actors}:
        assert token not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for pid in actors:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        assert token not in variables
        assert b"TOKEN" not in variables


def test_nothing_listens_beyond_this_machine(intruded: Intruded) -> None:
    inodes = set()
    for pid in {intruded.system.pid(name) for name in intruded.system.names}:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            target = str(handle.readlink()) if handle.is_symlink() else ""
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = [
        fields[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[3] == "0A" and fields[9] in inodes
    ]
    assert len(listening) >= len(intruded.system.names)
    assert {address.split(":")[0] for address in listening} == {"0100007F"}
