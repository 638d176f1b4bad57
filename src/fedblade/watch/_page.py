"""The report as a page that reloads itself. It is built again when a browser asks for it and files have changed."""

import hashlib
import html
import json
import tempfile
import threading
import time
from pathlib import Path

from fedblade.report import build_report
from fedblade.watch._folder import stamps

_REST = 10
"""After building, the page is left as it is for this many times as long, so that watching does not slow the run."""
_NOTHING = "default-src 'none'"
"""The policy of both pages begins so: nothing may be loaded from anywhere."""
_SCRIPT = """(() => {
  const version = %s, key = "fedblade-watch-scroll";
  const kept = sessionStorage.getItem(key);
  if (kept !== null) {
    sessionStorage.removeItem(key);
    addEventListener("load", () => scrollTo(0, Number(kept)));
  }
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const reply = await fetch("/version", {cache: "no-store"});
      if (!reply.ok || (await reply.text()) === version) return;
      sessionStorage.setItem(key, String(scrollY));
      location.reload();
    } catch (gone) { return; }
  }, 2000);
})();"""
_WAITING = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Waiting · fedblade report</title>
</head>
<body><h1>Waiting for a run</h1><p>%s</p></body>
</html>
"""


class LivePage:
    """The newest report of the runs at or below `path`. Nothing is written there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._version = self._built = ""
        self._report: str | None = None
        self._content = b""
        self._rest_until = 0.0

    def version(self) -> str:
        """A text that changes whenever the files of the runs change."""
        with self._lock:
            return self._newest_version()

    def content(self) -> bytes:
        """The page of the current version."""
        with self._lock:
            version = self._newest_version()
            if version != self._built:
                began = time.monotonic()
                self._content = refreshing(self._build(), version).encode()
                self._built = version
                self._rest_until = time.monotonic() + _REST * (time.monotonic() - began)
            return self._content

    def _newest_version(self) -> str:
        if not self._version or time.monotonic() >= self._rest_until:
            newest = sorted((str(folder), sorted(files.items())) for folder, files in stamps(self._path).items())
            self._version = hashlib.sha256(json.dumps(newest).encode()).hexdigest()[:16]
        return self._version

    def _build(self) -> str:
        """The report, or the report before if the files cannot be read now."""
        try:
            with tempfile.TemporaryDirectory(prefix="fedblade-watch-") as folder:
                self._report = build_report([self._path], Path(folder) / "report.html").read_text(encoding="utf-8")
        except Exception as error:
            # A half-written or foreign file may cause any error, and its next change may mend it.
            return self._report or _WAITING % html.escape(str(error))
        return self._report


def refreshing(page: str, version: str) -> str:
    """The page with a script that reloads it when `/version` changes, which the page may then ask for."""
    allowed = page.replace(_NOTHING, f"{_NOTHING}; connect-src 'self'", 1)
    before, end, after = allowed.rpartition("</body>")
    return f"{before}<script>{_SCRIPT % json.dumps(version)}</script>{end}{after}"
