"""The server half of a run as Flower's ServerApp: one for every method."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedblade.flower._grid_transport import GridTransport
from fedblade.flower._journal import RunJournal
from fedblade.flower._server import check_deployable, deployed_setup
from fedblade.flower.admissions import CurrentAdmissions
from fedblade.flower.app import read_app
from fedblade.flower.app_folder import AppFolder
from fedblade.runs import RunJob, Setup

RUN_DIR, RESUME = "run-dir", "resume"
"""Keys of the app's configuration: the folder of the run, and whether the run in it is resumed."""


def server_app(folder: Path) -> ServerApp:
    """The server of the app in a folder; refuses a configuration that cannot be deployed."""
    config, deployment = read_app(folder)
    check_deployable(config, deployment)
    app, admissions = ServerApp(), CurrentAdmissions(AppFolder(folder.resolve()))

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        out = Path(str(context.run_config[RUN_DIR]))
        journal = RunJournal(out)

        def make_setup() -> Setup:
            journal.begin()
            return deployed_setup(config, deployment, GridTransport(grid), out, journal, admissions.clients_of)

        with journal.noting_end():
            RunJob(config, out, resume=bool(context.run_config[RESUME]), make_setup=make_setup).execute()

    return app
