"""An environment of one's own that is edited while the system stays up."""

from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.e2e.runs import tiny, train, wait_finished

_SOURCE = """
import gymnasium, numpy as np

class Slope(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (SIZE,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.elapsed = 0
        return np.zeros(SIZE, np.float32), {}

    def step(self, action):
        self.elapsed += 1
        drag = 1 if self.elapsed < 4 else FRICTION
        return np.zeros(SIZE, np.float32), float(drag), self.elapsed == 8, False, {}

gymnasium.register("Slope-v0", entry_point=Slope)
"""


def test_a_repaired_environment_is_what_a_resumed_job_trains_on_and_a_new_one_sees(
    tmp_path: Path,
) -> None:
    package = tmp_path / "slope_envs.py"
    package.write_text(_SOURCE.replace("SIZE", "2"))
    actors = {"NITRO_ENVIRONMENT_PACKAGES": "slope_envs", "PYTHONPATH": str(tmp_path)}
    spec = tiny(env_id="Slope-v0", stop={"max_rounds": 2}, evaluation={"every_rounds": 0})
    with (
        LocalSystem(tmp_path / "runs", processes=3, actor_variables=actors) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        failed = train(client, spec)
        assert failed.status == "failed"
        assert "name 'FRICTION' is not defined" in str(failed.error)
        package.write_text(_SOURCE.replace("SIZE", "2").replace("FRICTION", "0.25"))
        client.resume(failed.job_id)
        resumed = wait_finished(client, failed.job_id)
        assert resumed.status == "succeeded", resumed.error
        (line, _) = client.every_round(failed.job_id)
        assert line.trouble.lost == 0  # of the attempt that counts
        package.write_text(_SOURCE.replace("SIZE", "3").replace("FRICTION", "0.125"))
        wider = train(client, spec)
        assert wider.status == "succeeded", wider.error
        assert wider.described_environment.observation.shape == (3,)
