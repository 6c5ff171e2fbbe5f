"""Paths that a notebook shows as a picture or a film."""

import base64
from pathlib import PosixPath

_KINDS = {".mp4": "video/mp4", ".gif": "image/gif", ".webm": "video/webm"}


class Picture(PosixPath):
    """Path of a picture; a notebook shows the picture."""

    def _repr_png_(self) -> bytes | None:
        return self.read_bytes() if self.suffix == ".png" else None

    def _repr_svg_(self) -> str | None:
        return self.read_text(encoding="utf-8") if self.suffix == ".svg" else None


class Film(PosixPath):
    """Path of a film; a notebook plays the film."""

    def _repr_html_(self) -> str:
        kind = _KINDS.get(self.suffix, "application/octet-stream")
        data = f"data:{kind};base64,{base64.b64encode(self.read_bytes()).decode()}"
        if kind.startswith("image/"):
            return f'<img src="{data}">'
        return f'<video controls loop src="{data}"></video>'
