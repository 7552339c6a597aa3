"""What one append costs the server: task steps, scheduler passes, and CPU time of the event loop.

    python bench/append_cost.py --appends 2000

One caller in a closed loop over a real socket: 80 ms of sound in, marked sound and its words out, the next append when they
are there (scripted model, native, steps that take no time). The server runs on the event loop of the main thread, the
caller in a thread of its own, so that neither counts for the other. Counts are exact; compare CPU times only with those of
another tree in turn on the same machine.
"""

import argparse
import base64
import json
import socket
import time
from collections import Counter
from functools import partial

import trio
from wire import masked, upgrade_request

from duplex_engine.engine import open_engine
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.server.app import serve
from duplex_engine.server.settings import ServeConfig

SCRIPT = f'forever {{ listen 1; speak "{" ".join(["word"] * 100)}" for 80 }}'
APPEND = masked(
    json.dumps(
        {
            "type": "input_audio_buffer.append",
            "audio": base64.b64encode(bytes(2560)).decode(),
            "format": "pcm16",
            "sample_rate_hz": 16000,
        }
    ).encode()
)
OPEN = masked(b'{"type":"session.update","session":{"turn_detection":null,"extra_body":{"auto_response":true}}}')
WARM_UP = 200


class StepCounter(trio.abc.Instrument):
    """Counts what the scheduler does."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.passes = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """One step of a task."""
        self.steps[task.name.rpartition(".")[2]] += 1

    def before_io_wait(self, timeout: float) -> None:
        """One pass of the scheduler ends."""
        self.passes += 1


class Caller:
    """A client that waits in the kernel."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(upgrade_request("127.0.0.1", port, "/v1/realtime?duplex=1&autostart=0"))
        self._hear(b"\r\n\r\n")
        self._socket.sendall(OPEN)
        self._hear(b'"type":"session.updated"')

    def converse(self, appends: int) -> None:
        """So many appends, one after the other. After a thousand a new answer begins with a unit that is only heard."""
        for _ in range(appends):
            self._socket.sendall(APPEND)
            self._hear(b'output_audio_transcript.delta"')

    def _hear(self, expected: bytes) -> None:
        heard = b""
        while expected not in heard:
            data = self._socket.recv(262_144)
            assert data, "the server hung up"
            heard += data


async def measure(appends: int, counter: StepCounter) -> None:
    """Run server and caller, and print what was counted."""
    plugin = ScriptedPlugin(mode="native", step_ms=0, script=SCRIPT)
    async with open_engine(plugin=plugin) as engine, trio.open_nursery() as nursery:
        serving = partial(serve, engine, ServeConfig(port=0), signals=())
        (url,) = await nursery.start(serving)
        caller = await trio.to_thread.run_sync(Caller, int(url.rpartition(":")[2]))
        await trio.to_thread.run_sync(caller.converse, WARM_UP)
        counter.steps.clear()
        counter.passes = 0
        began = time.thread_time()
        await trio.to_thread.run_sync(caller.converse, appends)
        spent = time.thread_time() - began
        report(appends, spent, counter)
        nursery.cancel_scope.cancel()


def report(appends: int, spent: float, counter: StepCounter) -> None:
    """Per append."""
    print(f"event loop: {1e6 * spent / appends:.0f} us of CPU per append")
    print(f"scheduler:  {counter.passes / appends:.2f} passes, {counter.steps.total() / appends:.2f} steps, of which")
    for name, count in counter.steps.most_common():
        if count > 0.05 * appends:
            print(f"  {count / appends:5.2f}  {name}")


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=2000)
    chosen = parser.parse_args()
    counter = StepCounter()
    trio.run(measure, chosen.appends, counter, instruments=[counter])


if __name__ == "__main__":
    main()
