"""A job's note over REST."""

from shared.contracts.jobs import Job
from tests.services.scaler.running import Scaler


def test_a_note_is_rewritten_and_decides_nothing(scaler: Scaler) -> None:
    job = scaler.submit(note="first words")
    path = f"/v1/jobs/{job.job_id}/note"
    answers = [scaler.http.put(path, json={"note": "for the paper"}) for _ in range(2)]
    for answer in answers:
        assert answer.status_code == 200, answer.text
    noted = Job.model_validate_json(scaler.http.get(f"/v1/jobs/{job.job_id}").content)
    assert (job.spec.note, noted.spec.note) == ("first words", "for the paper")
    assert noted.spec.model_copy(update={"note": ""}) == job.spec.model_copy(update={"note": ""})


def test_a_note_that_is_too_long_changes_nothing(scaler: Scaler) -> None:
    job = scaler.submit(note="kept")
    path = f"/v1/jobs/{job.job_id}/note"
    refused = scaler.http.put(path, json={"note": "x" * 2001})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "note"
    assert scaler.http.put("/v1/jobs/none/note", json={"note": ""}).status_code == 404
    kept = Job.model_validate_json(scaler.http.get(f"/v1/jobs/{job.job_id}").content)
    assert kept.spec.note == "kept"
