"""The page's files as the scaler serves them: text that anybody may read, without a secret in it.

What the page shows comes from the API, under the token. All files lie under an address that holds
a hash of them, so that a browser keeps them for good, and a new version never meets an old file.
"""

import gzip
import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

FOLDER = Path(__file__).parent
PAGES = {"/": "index.html", "/docs": "docs.html"}
"""Addresses to open in a browser: the dashboard, and the API's reference."""
PREFIX = "/web/"
"""Begins the address of every other file."""
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""No script but our own files, no evaluated text, no other host, in nobody's frame."""
_FOR_GOOD = "public, max-age=31536000, immutable"
_VERSION_MARK = b"VERSION"
"""Stands for the files' hash in the pages."""


def page_files() -> dict[str, bytes]:
    """Return all files of the page, by their path below this folder."""
    paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
    return {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}


def is_page(path: str) -> bool:
    """Whether an address is one of the pages' or their files', and not of the API."""
    return path in PAGES or path.startswith(PREFIX)


def page_routes() -> list[Route]:
    """Return the routes of the pages; their files are read once, here."""
    files = page_files()
    version = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
    pages = {
        path: files.pop(name).replace(_VERSION_MARK, version.encode())
        for path, name in PAGES.items()
    }
    packed = {path: gzip.compress(data, mtime=0) for path, data in files.items()}
    etag = f'"{version}"'

    async def page(request: Request) -> Response:
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(pages[request.scope["path"]], headers=headers, media_type="text/html")

    async def file(request: Request) -> Response:
        path = request.path_params["path"]
        if request.path_params["version"] != version or path not in files:
            return PlainTextResponse("no such file", status_code=404, headers=HEADERS)
        headers = {**HEADERS, "Cache-Control": _FOR_GOOD, "Vary": "Accept-Encoding"}
        media_type = MEDIA_TYPES[Path(path).suffix]
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(files[path], headers=headers, media_type=media_type)
        headers["Content-Encoding"] = "gzip"
        return Response(packed[path], headers=headers, media_type=media_type)

    return [
        *(Route(path, page, include_in_schema=False) for path in PAGES),
        Route(f"{PREFIX}{{version}}/{{path:path}}", file, include_in_schema=False),
    ]
