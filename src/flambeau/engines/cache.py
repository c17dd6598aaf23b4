"""A cache of compiled artefacts on disk, shared by processes and bounded in size."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_BYTES = 2 << 30
_BINARY: int = getattr(os, "O_BINARY", 0)


def cache_directory() -> Path:
    """Return the folder of everything that Flambeau may throw away; `FLAMBEAU_CACHE_DIR` moves it."""
    if chosen := os.environ.get("FLAMBEAU_CACHE_DIR"):
        return Path(chosen)
    if platform.system() == "Windows":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif platform.system() == "Darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flambeau"


def cache_enabled() -> bool:
    """Tell whether artefacts are cached; `FLAMBEAU_CACHE=0` turns that off."""
    return os.environ.get("FLAMBEAU_CACHE", "1") != "0"


def cache_key(*parts: bytes | str) -> str:
    """Hash the parts, and their boundaries, to the name of an artefact."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def write_atomically(path: Path, *chunks: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file so that a reader sees all of it or nothing, even when two processes write it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        # Not `tempfile`: its files can be read by their owner only, which is wrong for something that people share.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class ArtefactCache:
    """Artefacts by key. A cache never fails: what cannot be read is a miss, what cannot be written is dropped."""

    directory: Path
    limit: int = LIMIT_BYTES

    def get(self, key: str) -> tuple[bytes, dict[str, Any]] | None:
        """Return the artefact and what was noted about it; None when it is missing or damaged."""
        path = self.directory / key
        try:
            head, _, payload = path.read_bytes().partition(b"\n")
            notes: dict[str, Any] = json.loads(head)
            if notes.pop("sha256") != hashlib.sha256(payload).hexdigest():
                return None
            os.utime(path)  # eviction drops what was used least recently
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return payload, notes

    def put(self, key: str, payload: bytes, notes: Mapping[str, Any]) -> None:
        """Keep an artefact, and drop the oldest ones if there are now too many."""
        head = json.dumps({**notes, "sha256": hashlib.sha256(payload).hexdigest()}).encode()
        try:
            write_atomically(self.directory / key, head, b"\n", payload)
            self._evict(keep=key)
        except OSError:
            pass

    def _evict(self, keep: str) -> None:
        entries = []
        with os.scandir(self.directory) as found:
            for entry in found:
                try:
                    status = entry.stat()
                except FileNotFoundError:  # another process is evicting too
                    continue
                if entry.is_file():
                    entries.append((status.st_mtime, status.st_size, entry))
        excess = sum(size for _, size, _ in entries) - self.limit
        for _, size, entry in sorted(entries, key=lambda e: e[0]):
            if excess <= 0:
                return
            if entry.name != keep:
                Path(entry.path).unlink(missing_ok=True)
                excess -= size
