"""The made-up trajectory passes the learner's checks and is as large as a real one."""

from benchmarks.actors.trajectory import ENVIRONMENT, STEPS, made_up_trajectory
from shared.trajectory.trajectory import decode_trajectory, encode_trajectory


def test_it_survives_the_codec_and_its_checks() -> None:
    made = made_up_trajectory()
    back = decode_trajectory(encode_trajectory(made), environment=ENVIRONMENT)
    assert (back.num_steps, back.num_envs) == (STEPS, 1)
    assert (back.observation == made.observation).all()
