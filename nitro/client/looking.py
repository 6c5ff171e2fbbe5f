"""A client's further views, besides jobs, rounds and bills."""

from abc import ABC, abstractmethod
from typing import TypeVar
from urllib.parse import quote

from shared.contracts.message import Message
from shared.contracts.views.curves import Curves
from shared.contracts.views.events import EventPage
from shared.contracts.views.files import ArtifactLinks, LogPage
from shared.contracts.views.system import Session

M = TypeVar("M", bound=Message)


class Looking(ABC):
    """Read-only calls."""

    @abstractmethod
    def get_message(self, kind: type[M], path: str, **parameters: str | None) -> M:
        """Return the answer to a GET; parameters of None are left out."""

    def session(self) -> Session:
        """Return the token's role and its permissions."""
        return self.get_message(Session, "/v1/session")

    def curves(self, job_id: str, *, after: int = -1) -> Curves:
        """Return a job's rounds after the given one as columns, one page."""
        return self.get_message(Curves, job_path(job_id, "curves"), after=str(after))

    def events(self, job_id: str, *, after: int = -1) -> EventPage:
        """Return a job's events after the given one."""
        return self.get_message(EventPage, job_path(job_id, "events"), after=str(after))

    def logs(self, job_id: str, *, source: str | None = None, limit: int = 200) -> LogPage:
        """Return the newest log lines that name a job."""
        path = job_path(job_id, "logs")
        return self.get_message(LogPage, path, source=source, limit=str(limit))

    def artifacts(self, job_id: str) -> ArtifactLinks:
        """Return links to all of a job's files, page by page."""
        path = job_path(job_id, "artifacts")
        links = self.get_message(ArtifactLinks, path)
        while links.truncated:
            page = self.get_message(ArtifactLinks, path, after=links.files[-1].name)
            links = page.model_copy(update={"files": (*links.files, *page.files)})
        return links


def job_path(job_id: str, *parts: str) -> str:
    """Return the address of a job, or of a part of it."""
    return "/".join(["/v1/jobs", quote(job_id, safe=""), *parts])
