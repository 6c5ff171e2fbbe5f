"""All packages of all deployables in one folder, so that builds and fresh environments are offline.

They are fetched by this interpreter's pip, with whatever index, certificate and proxy it is set up
with: none of that has to enter an image. As long as the same is asked for, they are fetched once.
"""

import functools
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from containers.requirements import read_project, requirements

ROOT = Path(__file__).parents[2]
EXTRAS = ("actor", "scaler", "emulator", "learner", "cli")
PYTHON_OF_IMAGES = "3.11"
_USUAL_PORT = 48399
"""The URL is a build argument: while it stays the same, Docker's build cache holds. It names the
packages, so that the cache holds no longer than they do."""


@functools.cache
def packages() -> Path:
    """Return the folder, filled; it is kept, so that the next time is short."""
    folder = ROOT / "build" / "wheelhouse"
    _fill(folder)
    return folder


def _fill(folder: Path) -> None:
    project = read_project(ROOT / "pyproject.toml")
    wanted = {line for extra in EXTRAS for line in requirements(project, extra)}
    # Python before 3.11.3 needs it for redis, and images may be built on one.
    wanted.add("async-timeout")
    constraints = ROOT / "constraints.txt"
    asked = "\n".join([PYTHON_OF_IMAGES, sys.version, *sorted(wanted), constraints.read_text()])
    stamp = folder.with_suffix(".filled")
    if folder.is_dir() and stamp.is_file() and stamp.read_text() == asked:
        return  # pip would look every package up once more, for minutes
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)),
            *("--only-binary", ":all:", "--python-version", PYTHON_OF_IMAGES),
            *("--constraint", str(constraints)),
            *sorted(wanted),
        ],
        check=True,
        timeout=900,
    )
    stamp.write_text(asked)


class _Packages(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        # What comes first only tells one set of packages from another.
        return super().translate_path("/" + path.lstrip("/").partition("/")[2])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder on this machine's loopback; yields its URL."""
    with _server(functools.partial(_Packages, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{_contents(folder)}/"
        finally:
            server.shutdown()
            thread.join()


def _contents(folder: Path) -> str:
    """Return a name for the set of files in a folder; a package's own name tells its build."""
    names = "\n".join(sorted(path.name for path in folder.iterdir()))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def _server(handler: Callable[..., SimpleHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer(("127.0.0.1", _USUAL_PORT), handler)
    except OSError:
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)
