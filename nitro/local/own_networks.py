"""Custom networks of a local learner, and their records for a resume.

A job has only its network's name. Where the learner imports it from is stored next to the jobs in a
private folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from nitro.local.module_path import folders_of, module_path
from nitro.settings import STATE_FOLDER


class OwnNetworks(BaseModel):
    """Custom networks, and where another process imports them."""

    model_config = ConfigDict(frozen=True)

    names: tuple[str, ...] = ()
    """As `nitro.python.makers.maker_name` returns them."""
    folders: tuple[Path, ...] = ()
    """Folders of their modules."""

    @classmethod
    def imported(cls, names: Sequence[str]) -> Self:
        """Return networks whose modules this process has imported; files need no folder."""
        modules = (name.partition(":")[0] for name in names if ".py:" not in name)
        return cls(names=tuple(names), folders=folders_of(modules))

    @classmethod
    def kept(cls, run: Path) -> Self:
        """Return a run's stored networks; none if there is no readable record."""
        try:
            return cls.model_validate_json(_path(run).read_bytes())
        except (OSError, ValueError):
            return cls()

    def keep(self, run: Path) -> None:
        """Store them for a run, whose folder need not exist yet."""
        if self.names:
            path = _path(run)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.model_dump_json(), encoding="utf-8")

    def variables(self) -> dict[str, str]:
        """Return the settings of a local learner that trains them."""
        if not self.names:
            return {}
        return {"NITRO_NETWORKS": ",".join(self.names), "PYTHONPATH": module_path(self.folders)}


def _path(run: Path) -> Path:
    absolute = run.absolute()
    return absolute.parent / STATE_FOLDER / "networks" / f"{absolute.name}.json"
