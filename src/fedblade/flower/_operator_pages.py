"""Two pages for the operator of a federation, on this machine alone: `/health`, and `/metrics` for Prometheus."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http import HTTPStatus

from fedblade.core.loopback_pages import LoopbackServer, Page
from fedblade.flower._figures import figures, problems, prometheus_text
from fedblade.flower._processes import ProcessFailed
from fedblade.flower._record import FederationRecord
from fedblade.flower.app_folder import AppFolder


@contextlib.contextmanager
def operator_pages(app: AppFolder, record: FederationRecord) -> Iterator[None]:
    """Serve the pages on the port of the record; with 0 on any free port, which is put into the record."""

    def health() -> Page:
        found = problems(app, record)
        text = json.dumps({"status": "not ready" if found else "ok", "problems": found}) + "\n"
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return Page(text.encode(), "application/json", status)

    def metrics() -> Page:
        return Page(prometheus_text(figures(app, record)).encode(), "text/plain; version=0.0.4")

    try:
        server = LoopbackServer({"/health": health, "/metrics": metrics}, record.pages_port)
    except OSError as error:
        raise ProcessFailed(
            f"the operator's pages cannot be served on port {record.pages_port}: {error.strerror}. End the program "
            f"that uses it, or write another pages_port into '{app.service}'"
        ) from error
    record.pages_port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
