"""Device programs for the thread and process hosts. Imported in child processes: keep the imports light."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import attrs
from outcome import Error, Value

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.contract import Progress, Result, Work


@attrs.frozen
class Do:
    """Call a method of HostedStepper in the step and answer what it returns."""

    what: str
    argument: object = None


class HostedStepper:
    """Does what its items say, wherever it runs. `loading`: what goes wrong while it loads."""

    def __init__(self, loading: str = "") -> None:
        self._loading = loading
        self._load_thread = 0
        self._nice_at_import = NICE_AT_IMPORT

    def load(self, progress: Progress) -> None:
        self._load_thread = threading.get_ident()
        progress("opening", 0.25)
        if self._loading == "refuse":
            raise DuplexError("weights are missing; run `make weights`")
        if self._loading == "crash":
            raise RuntimeError("no such device")
        if self._loading == "hang":
            self.hang(None)
        progress("opened", 1.0)

    def step(self, work: Work) -> Iterator[Result]:
        for _, ticket, payload in work.items:
            assert isinstance(payload, Do)
            if payload.what == "fail":
                yield Result(ticket, Error(Unpicklable("one", "two")))
            else:
                method: Callable[[object], object] = getattr(self, payload.what)
                yield Result(ticket, Value(method(payload.argument)))

    def close(self) -> None:
        print("closed", threading.get_ident() == self._load_thread)

    # --- what an item may ask for -------------------------------------------------------------------------------

    def echo(self, argument: object) -> object:
        return argument

    def crash(self, argument: object) -> object:
        raise RuntimeError(f"cannot {argument}")

    def kill(self, argument: object) -> object:
        print("going down")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def exit(self, argument: int) -> object:
        os._exit(argument)

    def hang(self, argument: object) -> object:
        print("hanging")
        while True:
            threading.Event().wait()

    def hang_stubbornly(self, argument: object) -> object:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return self.hang(argument)

    def say(self, argument: str) -> None:
        print(argument)
        print(argument, file=sys.stderr)

    def about(self, argument: object) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "nice": os.nice(0),
            "nice_at_import": self._nice_at_import,
            "environment": os.environ.get("HOSTED_STEPPER"),
            "environment_at_import": ENVIRONMENT_AT_IMPORT,
            "interrupt": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
            "group": os.getpgid(0),
            "same_thread": threading.get_ident() == self._load_thread,
            "open_files": len(os.listdir("/proc/self/fd")),
        }


class PatientStepper:
    """Its step says that it began, waits until it may end, and says that it has ended."""

    def __init__(self, events: tuple[threading.Event, threading.Event, threading.Event]) -> None:
        self._stepping, self._may_end, self._ended = events

    def load(self, progress: Progress) -> None:
        pass

    def step(self, work: Work) -> tuple[Result, ...]:
        self._stepping.set()
        self._may_end.wait()
        self._ended.set()
        return ()

    def close(self) -> None:
        assert self._ended.is_set(), "closed in the middle of a step"


class Unpicklable(Exception):
    """An exception that cannot be built again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


NICE_AT_IMPORT = os.nice(0)
ENVIRONMENT_AT_IMPORT = os.environ.get("HOSTED_STEPPER")
