"""The process host: the stepper runs in a child that can be killed, behind a framed pipe, one step in flight.

Owns the child's life: spawned with its pipe inherited, ended by hanging up, then terminate, then kill. The one shield
here bounds that ending. What the child prints becomes lines of our log; stdout is the server's own.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager

import structlog
import trio

from duplex_engine.actors.host import HostedStepper, WorkerCrashed, ignore, refused
from duplex_engine.actors.host.wire import Crashed, Load, Loaded, Loading, PipeMessage, Refused, Stepped, Unpacker, pack
from duplex_engine.actors.supervisor import sole_exception
from duplex_engine.model_plugins.contract import Progress, Result, Work, WorkerSpec

log = structlog.get_logger()

CHILD = (sys.executable, "-u", "-X", "faulthandler", "-m", "duplex_engine.actors.host.child")
TERMINATE_AFTER_S = 1.0
KILL_AFTER_S = 5.0
EXIT_S = 1.0
LAST_LINES = 20
LINE_ENDS = re.compile(rb"[\r\n]+")


class ProcessHost:
    """Runs each stepper in a child process of its own."""

    @asynccontextmanager
    async def open(
        self, spec: WorkerSpec, progress: Progress, on_end: Callable[[], object] = ignore
    ) -> AsyncIterator[HostedStepper]:
        """Spawn, load (within the spec's load timeout), and in the end see the child gone.

        Raises WorkerCrashed, or ServiceFailed when the stepper says that it cannot be loaded here.
        """
        child = await _spawn(spec)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child.log_output)
                nursery.start_soon(child.notice_end, on_end)
                await child.load(spec, progress)
                yield child
                nursery.cancel_scope.cancel(reason="the host is closed")
        except ExceptionGroup as group:
            raise sole_exception(group) from None
        finally:
            await child.see_gone()


async def _spawn(spec: WorkerSpec) -> "_Child":
    ours, theirs = socket.socketpair()
    with theirs, ExitStack() as undo:
        pipe = trio.SocketStream(trio.socket.from_stdlib_socket(undo.enter_context(ours)))
        process = await trio.lowlevel.open_process(
            [*CHILD, str(theirs.fileno()), spec.name],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **spec.environment},
            process_group=0,
        )
        undo.pop_all()
    return _Child(spec.name, process, pipe)


class _Child:
    def __init__(self, name: str, process: trio.Process, pipe: trio.SocketStream) -> None:
        assert process.stdout is not None
        self._name = name
        self._process = process
        self._pipe = pipe
        self._output = process.stdout
        self._silent = trio.Event()
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._unfinished_line = b""
        self._messages = Unpacker()
        self._waiting: deque[PipeMessage] = deque()

    async def load(self, spec: WorkerSpec, progress: Progress) -> None:
        """Have the stepper loaded."""
        try:
            with trio.fail_after(spec.load_timeout_s):
                message = await self._ask(Load(spec.stepper, spec.arguments, tuple(sys.path), spec.nice))
                while isinstance(message, Loading):
                    progress(message.what, message.fraction)
                    message = await self._receive()
        except trio.TooSlowError:
            raise WorkerCrashed(f"worker {self._name!r} did not load within {spec.load_timeout_s:g} s") from None
        if isinstance(message, Refused):
            raise refused(spec, message.cause)
        if not isinstance(message, Loaded):
            raise WorkerCrashed(f"worker {self._name!r} answered its load with {type(message).__name__}")

    async def step(self, work: Work) -> Sequence[Result]:
        """One step."""
        message = await self._ask(work)
        if not isinstance(message, Stepped):
            raise WorkerCrashed(f"worker {self._name!r} answered a step with {type(message).__name__}")
        return message.results

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    async def notice_end(self, on_end: Callable[[], object]) -> None:
        """Wait for the process to end; one that dies between two steps is missed at once, not by the next caller."""
        await self._process.wait()
        on_end()

    # --- the pipe -----------------------------------------------------------------------------------------------

    async def _ask(self, question: PipeMessage) -> PipeMessage:
        try:
            await self._pipe.send_all(pack(question))
        except trio.BrokenResourceError:
            pass  # it may have said why before it went
        return await self._receive()

    async def _receive(self) -> PipeMessage:
        while not self._waiting:
            try:
                data = await self._pipe.receive_some(1 << 20)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise await self._gone()
            self._waiting.extend(self._messages.push(data))
        message = self._waiting.popleft()
        if isinstance(message, Crashed):
            crash = WorkerCrashed(f"worker {self._name!r} raised: {message.cause}")
            crash.add_note(message.traceback)
            raise crash
        return message

    async def _gone(self) -> WorkerCrashed:
        with trio.move_on_after(EXIT_S):
            await self._process.wait()
            await self._silent.wait()
        error = WorkerCrashed(f"the process of worker {self._name!r} (pid {self._process.pid}) {self._ending()}")
        if self._last_lines:
            error.add_note("It printed last:\n" + "\n".join(self._last_lines))
        return error

    def _ending(self) -> str:
        status = self._process.returncode
        if status is None:
            return "hung up"
        return f"exited with status {status}" if status >= 0 else f"was killed ({signal.strsignal(-status)})"

    # --- what it prints -----------------------------------------------------------------------------------------

    async def log_output(self) -> None:
        """Log what the child prints, line by line, until it is silent for good."""
        while data := await self._output.receive_some():
            *lines, self._unfinished_line = LINE_ENDS.split(self._unfinished_line + data)
            for line in lines:
                self._log_line(line)
        self._log_line(self._unfinished_line)
        self._silent.set()

    def _log_line(self, line: bytes) -> None:
        if line.strip():
            self._last_lines.append(line.decode(errors="replace"))
            log.info("worker_output", worker=self._name, line=self._last_lines[-1])

    # --- its end ------------------------------------------------------------------------------------------------

    async def see_gone(self) -> None:
        """Hang up, then terminate, then kill, each with some patience."""
        with trio.CancelScope(shield=True):
            await self._pipe.aclose()
            await self._see_exit()
            with trio.move_on_after(EXIT_S):
                await self.log_output()
            await self._output.aclose()

    async def _see_exit(self) -> None:
        for patience_s, push in (
            (TERMINATE_AFTER_S, self._process.terminate),
            (KILL_AFTER_S, self._process.kill),
        ):
            with trio.move_on_after(patience_s):
                await self._process.wait()
                return
            push()
        with trio.move_on_after(KILL_AFTER_S) as patience:
            await self._process.wait()
        if patience.cancelled_caught:
            log.error("worker_process_does_not_die", worker=self._name, pid=self._process.pid)
