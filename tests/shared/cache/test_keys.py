"""Keys of the cache: none shared by two things, all of one job in one slot of a cluster."""

from itertools import product

from redis.crc import key_slot

from shared.cache import keys

_JOBS = ("a", "a-1", "hopper-v5-3f9a1c2b")


def _all_of(job_id: str) -> list[str]:
    names = [keys.cancel(job_id), *(keys.policy(job_id, version) for version in range(12))]
    for round_index in range(12):
        names += [keys.claims(job_id, round_index), keys.arrivals(job_id, round_index)]
        names += [
            keys.result(job_id, round_index, mode, actor)
            for mode, actor in product(("sample", "evaluate"), range(12))
        ]
    return names


def test_no_two_things_share_a_key() -> None:
    names = [name for job_id in _JOBS for name in _all_of(job_id)]
    assert len(set(names)) == len(names)


def test_a_jobs_keys_lie_in_one_slot_and_jobs_are_spread() -> None:
    slots = [{key_slot(name.encode()) for name in _all_of(job_id)} for job_id in _JOBS]
    assert [len(of_job) for of_job in slots] == [1, 1, 1]
    assert len(set.union(*slots)) == len(_JOBS)
