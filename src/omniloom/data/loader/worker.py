"""A worker process: makes batches of the lanes it is asked for and sends them with the lanes' states."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections import deque
from multiprocessing import reduction
from multiprocessing.connection import Connection

from omniloom.data.loader.messages import (
    DropLane,
    Failed,
    FreeSlabs,
    Made,
    MakeBatch,
    NewSlab,
    Poison,
    Ready,
    Request,
    RetireSlab,
    StateChange,
    WorkOrder,
    receive,
    send,
)
from omniloom.data.loader.runner import LaneRunner
from omniloom.data.loader.transport import SlabWriter
from omniloom.data.loader.watch import Board, StackFile
from omniloom.data.media.av_threads import give_threads
from omniloom.data.pipeline.stream import State
from omniloom.errors import WorkerError


def main(descriptor: int) -> None:
    """Entry point of a fresh interpreter: the work order comes first over the connection."""
    connection: Connection[object, Request] = Connection(descriptor)
    try:
        order: WorkOrder = receive(connection)
    except Exception as error:
        _tell_of_no_start(connection, error)
        return
    serve(connection, order)


def serve(connection: Connection[object, Request], order: WorkOrder) -> None:
    """Work until the caller closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's; it closes the connection
    threading.Thread(target=_leave_with_caller, args=(connection.fileno(),), daemon=True).start()
    try:
        worker = Worker(connection, order)
    except Exception as error:
        _tell_of_no_start(connection, error)
        return
    gc.freeze()  # what is here now stays: no collection needs to look at it again
    gc.set_threshold(10_000)  # samples come and go by reference count; cycles are rare
    with contextlib.suppress(*_CALLER_IS_GONE):
        worker.run()


_CALLER_IS_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


def _tell_of_no_start(connection: Connection[object, Request], error: Exception) -> None:
    with contextlib.suppress(*_CALLER_IS_GONE):
        send(connection, _failure(-1, -1, error))


class Worker:
    """The life of a worker."""

    def __init__(self, connection: Connection[object, Request], order: WorkOrder) -> None:
        self._connection = connection
        self._incoming = select.poll()  # kept, since `Connection.poll` makes a selector each time
        self._incoming.register(connection.fileno(), select.POLLIN)
        self._requests: deque[MakeBatch] = deque()
        self._sent: dict[int, State] = {}
        self._slabs = SlabWriter(self._announce_slab, lambda slab: send(connection, RetireSlab(slab)))
        self._board, board_descriptor = Board.create()
        stack = StackFile.register()
        send(connection, Ready(os.getpid()))
        reduction.send_handle(connection, board_descriptor, None)
        reduction.send_handle(connection, stack.descriptor, None)
        os.close(board_descriptor)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # as torch's own workers do
        give_threads(1)
        if order.on_start is not None:
            order.on_start(order.number)
        self._runner = LaneRunner(
            order.pipeline,
            order.policy,
            threads=order.threads,
            ahead_bytes=order.ahead_bytes,
            take_in_hand=self._board.take_in_hand,
        )
        self._runner.work.cache = order.cache_pool

    def run(self) -> None:
        """Answer requests, in the order in which they come."""
        while True:
            while not self._requests or self._incoming.poll(0):
                self._listen(receive(self._connection))
            self._make(self._requests.popleft())

    def _listen(self, request: Request) -> None:
        if isinstance(request, MakeBatch):
            self._requests.append(request)
        elif isinstance(request, FreeSlabs):
            for slab in request.slabs:
                self._slabs.give_back(slab)
        elif isinstance(request, DropLane):
            self._runner.close(request.lane_index)
            self._sent.pop(request.lane_index, None)
        elif isinstance(request, Poison):
            self._runner.desk.poisoned = request.keys

    def _make(self, request: MakeBatch) -> None:
        index = request.lane.index
        self._board.clear()
        try:
            if request.reopen:
                self._runner.open(request.lane, request.state, request.batches)
                self._sent.pop(index, None)
            produced = self._runner.next(index, request.batches)
            while self._incoming.poll(0):  # slabs that came back meanwhile can be used at once
                self._listen(receive(self._connection))
            parcel = None if produced.ended else self._slabs.pack(produced.batch)
        except Exception as error:  # where the caller is gone, sending fails, too
            send(self._connection, _failure(request.generation, index, error))
            return
        change = StateChange.between(self._sent.get(index), produced.state)
        self._sent[index] = produced.state
        send(self._connection, Made(request.generation, index, parcel, change, produced.tally, produced.remade))

    def _announce_slab(self, slab: int, size_bytes: int, descriptor: int) -> None:
        send(self._connection, NewSlab(slab, size_bytes))
        reduction.send_handle(self._connection, descriptor, None)


def _failure(generation: int, lane_index: int, error: Exception) -> Failed:
    """An error in a form that can be sent: itself where it can be pickled, else its text."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = WorkerError(f"{type(error).__name__}: {error}")
    return Failed(generation, lane_index, error, trace)


def _leave_with_caller(descriptor: int) -> None:
    """End the process at once when the caller's end of the connection closes, even in the midst of user code."""
    poll = select.poll()
    poll.register(descriptor, 0)
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        pass
    os._exit(0)
