"""The process host: the stepper runs in a child that can be killed, behind a framed pipe, one step in flight.

Owns the child's life: spawned with its pipe inherited, ended by hanging up, then terminate, then kill. The one shield
here bounds that ending.
"""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from duplex_engine.actors.host import HostedStepper, WorkerCrashed
from duplex_engine.actors.host.wire import Crashed, Load, Loaded, Loading, PipeMessage, Stepped, Unpacker, pack
from duplex_engine.model_plugins.contract import Progress, Result, Work, WorkerSpec

TERMINATE_AFTER_S = 1.0
KILL_AFTER_S = 5.0


class ProcessHost:
    """Runs each stepper in a child process of its own."""

    @asynccontextmanager
    async def open(self, spec: WorkerSpec, progress: Progress) -> AsyncIterator[HostedStepper]:
        """Spawn, load (within the spec's load timeout), and in the end see the child gone."""
        ours, theirs = socket.socketpair()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as pipe:
            with theirs:
                process = await trio.lowlevel.open_process(
                    [sys.executable, "-m", "duplex_engine.actors.host.child", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **spec.environment},
                    preexec_fn=partial(os.nice, spec.nice) if spec.nice else None,
                )
            try:
                child = _Child(spec.name, process, pipe)
                with trio.fail_after(spec.load_timeout_s):
                    await child.load(spec, progress)
                yield child
            finally:
                await _see_gone(process, pipe)


class _Child:
    def __init__(self, name: str, process: trio.Process, pipe: trio.SocketStream) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process
        self._pipe = pipe
        self._messages = Unpacker()
        self._waiting: list[PipeMessage] = []

    async def load(self, spec: WorkerSpec, progress: Progress) -> None:
        await self._pipe.send_all(pack(Load(spec.stepper, spec.arguments)))
        while isinstance(message := await self._receive(), Loading):
            progress(message.what, message.fraction)
        if not isinstance(message, Loaded):
            raise WorkerCrashed(f"worker {self._name!r} answered its load with {type(message).__name__}")

    async def step(self, work: Work) -> Sequence[Result]:
        try:
            await self._pipe.send_all(pack(work))
        except trio.BrokenResourceError:
            raise self._gone() from None
        message = await self._receive()
        if not isinstance(message, Stepped):
            raise WorkerCrashed(f"worker {self._name!r} answered a step with {type(message).__name__}")
        return message.results

    async def _receive(self) -> PipeMessage:
        while not self._waiting:
            try:
                data = await self._pipe.receive_some(1 << 20)
            except trio.BrokenResourceError:
                raise self._gone() from None
            if not data:
                raise self._gone()
            self._waiting.extend(self._messages.push(data))
        message = self._waiting.pop(0)
        if isinstance(message, Crashed):
            raise WorkerCrashed(f"worker {self._name!r} raised: {message.cause}\n{message.traceback}")
        return message

    def _gone(self) -> WorkerCrashed:
        return WorkerCrashed(f"the process of worker {self._name!r} (pid {self.pid}) ended")


async def _see_gone(process: trio.Process, pipe: trio.SocketStream) -> None:
    with trio.CancelScope(shield=True):
        await pipe.aclose()
        for patience_s, push in ((TERMINATE_AFTER_S, process.terminate), (KILL_AFTER_S, process.kill)):
            with trio.move_on_after(patience_s):
                await process.wait()
                return
            push()
        await process.wait()
