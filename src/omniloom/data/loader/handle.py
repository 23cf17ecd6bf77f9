"""A worker as the caller sees it: its process, its connection, what it was asked for, its slabs."""

from __future__ import annotations

import contextlib
import select
import time
from collections import deque
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

from omniloom.data.loader.messages import (
    Answer,
    FreeSlabs,
    MakeBatch,
    NewSlab,
    Ready,
    Request,
    RetireSlab,
    WorkOrder,
    receive,
    send,
)
from omniloom.data.loader.processes import Process, StartMethod, start_worker
from omniloom.data.loader.transport import SlabReader
from omniloom.data.loader.watch import Board, StackFile, out_of_memory_kills
from omniloom.data.sample import SampleKey


class WorkerHandle:
    """One worker process.

    Attributes:
        number: its number within the rank; a worker that replaces a dead one takes over its number.
        pid: its process id.
        queue: requests that it has not answered.
        slabs: the slabs that it announced.
    """

    def __init__(self, order: WorkOrder, method: StartMethod) -> None:
        self.number = order.number
        self.queue: deque[MakeBatch] = deque()
        self.ready = False
        self.answers = 0
        self._seen: tuple[SampleKey | None, int, float] = (None, 0, time.monotonic())
        self.reported_hang = False
        self._memory_kills_before = out_of_memory_kills()
        self._process: Process
        self.connection: Connection[Any, Any]
        self._process, self.connection = start_worker(order, method)
        self._incoming = select.poll()  # kept, since `Connection.poll` makes a selector each time
        self._incoming.register(self.connection.fileno(), select.POLLIN)
        self.pid = self._process.pid
        self._freed: deque[int] = deque()
        self.slabs = SlabReader(self._freed.append)
        self._board: Board | None = None
        self._stack: StackFile | None = None

    def ask(self, request: Request) -> None:
        """Send a request. A worker that is gone is noticed later, by its closed connection."""
        if isinstance(request, MakeBatch):
            self.queue.append(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, OSError):
            send(self.connection, request)

    def return_slabs(self) -> None:
        """Tell the worker which slabs it may use again."""
        if self._freed:
            slabs = []
            while self._freed:
                slabs.append(self._freed.popleft())
            self.ask(FreeSlabs(tuple(slabs)))

    def listen(self) -> list[Answer]:
        """All answers that have come. Raises EOFError once the worker is gone and its last answer was read."""
        answers: list[Answer] = []
        while self._incoming.poll(0):
            try:
                answer: Answer = receive(self.connection)
                self._note(answer)
            except (EOFError, ConnectionResetError, OSError):
                if answers:
                    return answers
                raise EOFError from None
            answers.append(answer)
            self.answers += 1
        return answers

    def _note(self, answer: Answer) -> None:
        if isinstance(answer, Ready):
            self._board = Board.received(reduction.recv_handle(self.connection))
            self._stack = StackFile(reduction.recv_handle(self.connection))
            self.ready = True
        elif isinstance(answer, NewSlab):
            self.slabs.add(answer.slab, answer.size_bytes, reduction.recv_handle(self.connection))
        elif isinstance(answer, RetireSlab):
            self.slabs.retire(answer.slab)

    def key_in_hand(self) -> SampleKey | None:
        """The key that the worker is, or was when it died, at work on."""
        return self._board.read() if self._board is not None and self.queue else None

    def busy_seconds(self) -> float:
        """How long the worker has been seen at one key; 0 when it has nothing to do. To be asked now and then."""
        if not self.queue:
            self._seen = (None, 0, time.monotonic())
            return 0.0
        sight = self.key_in_hand(), self.answers
        if sight != self._seen[:2]:
            self._seen = (*sight, time.monotonic())
        return time.monotonic() - self._seen[2]

    def stacks(self) -> str:
        """The stacks of the worker's threads."""
        return self._stack.ask(self.pid) if self._stack is not None else "(it has not started yet)"

    def exit_code(self, *, patience_seconds: float) -> tuple[int, bool]:
        """Exit code of a worker that closed its connection, and whether the kernel killed for memory meanwhile."""
        code = self._process.wait(patience_seconds)
        if code is None:
            self._process.kill()
            code = self._process.wait(None)
        return (code if code is not None else 0), out_of_memory_kills() > self._memory_kills_before

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self) -> None:
        """Close the connection, on which the worker leaves, and see that it does."""
        with contextlib.suppress(OSError):
            self.connection.close()
        if self._process.wait(2.0) is None:
            self._process.kill()
            self._process.wait(None)
        if self._stack is not None:
            self._stack.close()
            self._stack = None
