"""Ranks as threads of one process, for tests of what ranks tell each other."""

import threading
from functools import reduce

import torch

from fedblade.engines.ranks._bytes import as_bytes, decoded, encoded, from_bytes

CPU = torch.device("cpu")


class Meeting:
    """What threads exchange; they say things in turn and wait for each other."""

    def __init__(self, world):
        self.barrier = threading.Barrier(world, timeout=20)
        self.said = {}
        self.post = {}
        self.sent = threading.Condition()


class ThreadRanks:
    """One of several threads, with the exchanges of `Ranks`."""

    def __init__(self, meeting, rank, world):
        self.meeting, self.rank, self.world, self.busy = meeting, rank, world, True

    @property
    def is_rank_0(self):
        return self.rank == 0

    def _all(self, value):
        self.meeting.said[self.rank] = value
        self.meeting.barrier.wait()
        found = [self.meeting.said[rank] for rank in range(self.world)]
        self.meeting.barrier.wait()
        return found

    def broadcast(self, message):
        self._all(decoded(encoded(message)))

    def receive_broadcast(self):
        return self._all(None)[0], {}

    def gather(self, own):
        return decoded(encoded(self._all(own)))

    def reduce(self, vector, kind):
        combine = torch.maximum if kind == "max" else torch.add
        return reduce(combine, self._all(vector.clone()))

    def send(self, tree, target=0):
        with self.meeting.sent:
            self.meeting.post.setdefault(self.rank, []).append(as_bytes(tree, CPU))
            self.meeting.sent.notify_all()

    def receive(self, leaves, source):
        with self.meeting.sent:
            self.meeting.sent.wait_for(lambda: self.meeting.post.get(source), timeout=20)
            return from_bytes(self.meeting.post[source].pop(0), leaves)


def on_ranks(work, world):
    """What each rank's thread gives or raises."""
    meeting, found = Meeting(world), {}

    def run(rank):
        try:
            found[rank] = work(ThreadRanks(meeting, rank, world))
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(world)]
