"""A SuperLink that was killed before it answered has stored a piece of a message already: the sender goes on."""

import pytest

pytest.importorskip("flwr")
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from fedblade.flower._flwr_internals.servers import taking_pieces_again
from support.flower_logging import logging_kept

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own


def test_a_piece_that_is_sent_again_is_stored_and_an_unknown_one_is_not(tmp_path):
    path = str(tmp_path / "state.db")
    with logging_kept():
        state = LinkStateFactory(path, NoOpFederationManager(), ObjectStoreFactory(path)).state()
        run = state.create_run("", "", "", {}, "@none/default", None, "none", "flwr-serverapp")
        piece, unknown = ConfigRecord({"round": 1}), ArrayRecord()
        whole = RecordDict({"facts": piece})
        session = state.start_session(run)
        state.preregister_object_tree(get_object_tree(whole), session)
        flower_s_own = type(state).store_object
        store = taking_pieces_again(flower_s_own)
        assert store(state, run, session, piece.object_id, piece.deflate())
        assert not flower_s_own(state, run, session, piece.object_id, piece.deflate())
        assert store(state, run, session, piece.object_id, piece.deflate())
        assert not store(state, run, session, whole.object_id, piece.deflate())
        assert not store(state, run, session, unknown.object_id, unknown.deflate())
        assert store(state, run, session, whole.object_id, whole.deflate())
        state._engine.dispose()
