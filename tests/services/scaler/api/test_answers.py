"""A file that a learner still writes to, fetched over HTTP."""

from tests.services.scaler.running import Scaler


def test_a_file_that_grows_is_sent_as_long_as_it_was_and_the_connection_stays(
    scaler: Scaler,
) -> None:
    folder = scaler.runs_dir / scaler.submit().job_id
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "rounds.jsonl"
    url = f"/v1/jobs/{folder.name}/artifacts/rounds.jsonl"
    size = 64 * 1024 * 1024  # more than the sockets between us hold
    record.write_bytes(bytes(size))
    with scaler.http.stream("GET", url) as answer:
        stream = answer.extensions["network_stream"]
        address = stream.get_extra_info("client_addr")
        pieces = answer.iter_raw()
        received = len(next(pieces))
        with record.open("ab") as file:
            file.write(b"another round")
        received += sum(map(len, pieces))
    assert received == size
    again = scaler.http.get("/healthz")
    assert again.extensions["network_stream"].get_extra_info("client_addr") == address
