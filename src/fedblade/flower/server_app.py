"""The server half of a run as Flower's ServerApp: one for every method."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedblade.core.errors import FedbladeError
from fedblade.flower._grid_transport import GridTransport
from fedblade.flower._server import check_deployable, deployed_setup, journal_of
from fedblade.flower.app import read_app
from fedblade.runs import RunJob

RUN_DIR, RESUME = "run-dir", "resume"
"""Keys of the app's configuration: the folder of the run, and whether the run in it is resumed."""


def server_app(folder: Path) -> ServerApp:
    """The server of the app in a folder; refuses a configuration that cannot be deployed."""
    config, deployment = read_app(folder)
    check_deployable(config)
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        out = Path(str(context.run_config[RUN_DIR]))
        journal = journal_of(out)
        try:
            job = RunJob(
                config,
                out,
                resume=bool(context.run_config[RESUME]),
                make_setup=lambda: deployed_setup(config, deployment, GridTransport(grid), out, journal),
            )
            job.execute()
        except Exception as error:
            known = isinstance(error, FedbladeError)
            reason = str(error) if known else f"a {type(error).__name__}; Flower's log of the run says more"
            journal({"event": "failed", "reason": reason})
            raise

    return app
