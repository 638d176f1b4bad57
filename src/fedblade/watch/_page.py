"""The report as a page that reloads itself: built when it is asked for and something is new."""

import base64
import hashlib
import html
import json
import re
import tempfile
import threading
import time
from pathlib import Path

from fedblade.report import build_report
from fedblade.watch._folder import stamps

_SHARE = 10
"""Building takes at most one part in this many of the time, so that watching does not slow the run down."""
_POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")([^"]*)(")', re.IGNORECASE)
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
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Waiting · fedblade report</title>
</head>
<body><h1>Waiting for a run</h1><p>%s</p></body>
</html>
"""


class LivePage:
    """The newest report of the runs at or below `path`; `path` itself is only read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._version = self._built = ""
        self._report: str | None = None
        self._content = b""
        self._rest_until = 0.0

    def version(self) -> str:
        """A text that changes when there is something new to show."""
        with self._lock:
            return self._look()

    def content(self) -> bytes:
        """The page of the current version."""
        with self._lock:
            version = self._look()
            if version != self._built:
                began = time.monotonic()
                self._content = refreshing(self._build(), version).encode()
                self._built = version
                self._rest_until = time.monotonic() + _SHARE * (time.monotonic() - began)
            return self._content

    def _look(self) -> str:
        if not self._version or time.monotonic() >= self._rest_until:
            seen = sorted((str(folder), sorted(found.items())) for folder, found in stamps(self._path).items())
            self._version = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
        return self._version

    def _build(self) -> str:
        """The report, or what there was before where the files cannot be read as they are."""
        try:
            with tempfile.TemporaryDirectory(prefix="fedblade-watch-") as folder:
                self._report = build_report([self._path], Path(folder) / "report.html").read_text(encoding="utf-8")
        except Exception as error:
            # Whatever a half-written or foreign file makes of reading it, the next change may mend it.
            return self._report or _WAITING % html.escape(str(error))
        return self._report


def refreshing(page: str, version: str) -> str:
    """The page with a script that reloads it when `/version` is another, allowed by the page's own policy."""
    script = _SCRIPT % json.dumps(version)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = _POLICY.sub(lambda found: f"{found[1]}{_allow(found[2], digest)}{found[3]}", page, count=1)
    before, end, after = allowed.rpartition("</body>")
    return f"{before}<script>{script}</script>{end}{after}"


def _allow(policy: str, digest: str) -> str:
    """The content security policy, opened for the script and for requests to this server only."""
    parts = [part.split() for part in html.unescape(policy).split(";") if part.strip()]
    directives = {name.lower(): sources for name, *sources in parts}
    directives["connect-src"] = ["'self'"]
    scripts = [each for each in directives.get("script-src", directives.get("default-src", [])) if each != "'none'"]
    # A first hash beside 'unsafe-inline' would turn the latter off, and with it the page's own scripts.
    open_ = "'unsafe-inline'" in scripts and not any(each.startswith(("'sha", "'nonce-")) for each in scripts)
    directives["script-src"] = scripts if open_ else [*scripts, f"'sha256-{digest}'"]
    return "; ".join(" ".join([name, *sources]) for name, sources in directives.items())
