"""The language model, device side: a GGUF model run by xllamacpp (llama.cpp), several conversations at once.

Owns the model's server object, one thread for each running request, and the queue they all write to. Never knows turns
or sessions. A request is abandoned by its callback's answer, at the next token.
"""

import os
import platform
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from outcome import Error, Value

from duplex_engine.errors import StepFailed
from duplex_engine.model_plugins.cascade.models import ModelMissing, require
from duplex_engine.model_plugins.cascade.payloads import ChatMessage, Completion, Prompt, TextDelta
from duplex_engine.model_plugins.contract import Progress, Result, Work

ENVIRONMENT: Final = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Set before the runtime is imported: its threads would otherwise spin while they wait, on cores that others need."""

LONGEST_WAIT_S: Final = 0.01
PROMPT_CACHE_MIB: Final = 256
SMALL_MODEL_BYTES: Final = 200 * 1024 * 1024
SAMPLING: Final = {
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.1,
    "dry_multiplier": 0.8,
    "dry_allowed_length": 8,
    "dry_penalty_last_n": 128,
}
"""Against going round in circles, only repetitions longer than eight tokens are made unlikely: a plain penalty on
repeated tokens would make a model misread the clock in its own prompt."""


@attrs.define(eq=False)
class Request:
    """A prompt that is being answered in a thread of its own. Setting `abandoned` ends it at the next token."""

    ticket: int
    body: Mapping[str, object]
    abandoned: threading.Event = attrs.Factory(threading.Event)


@attrs.frozen
class Answer:
    """What a request's thread has to say; `last` ends the request."""

    request: Request
    content: TextDelta | Completion | StepFailed

    @property
    def last(self) -> bool:
        """Everything but text ends a request."""
        return not isinstance(self.content, TextDelta)


class LanguageModel:
    """A `Stepper`: each item is a Prompt, answered by TextDeltas and, as the last, a Completion.

    `model`: path of a GGUF file. `slots`: conversations at the same time. `context_tokens`: of each of them. `threads`:
    CPU threads, None for as many as make
    it faster. `prelude`: messages that prompts begin with; they are read while loading.
    """

    def __init__(
        self,
        *,
        model: str,
        slots: int = 1,
        context_tokens: int = 2048,
        threads: int | None = None,
        prelude: Sequence[ChatMessage] = (),
    ) -> None:
        self._model = model
        self._slots = slots
        self._context_tokens = context_tokens
        self._threads = threads or useful_threads(Path(model))
        self._prelude = tuple(prelude)
        self._running: dict[int, Request] = {}
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    # --- Stepper -----------------------------------------------------------------------------------------------

    def load(self, progress: Progress) -> None:
        """Load the weights and read the prelude once in every slot. Raises ModelMissing."""
        check_processor()
        os.environ.update(ENVIRONMENT)
        progress(f"loading language model {Path(self._model).name}", 0.0)
        runtime = require("xllamacpp")
        self._server: Any = runtime.Server(self._parameters(runtime))
        progress("warming up the language model", 0.7)
        self._warm_up()
        progress("the language model is ready", 1.0)

    def step(self, work: Work) -> Iterable[Result]:
        """Start new prompts, abandon dropped ones, and give what has been written since the last step.

        Waits a few milliseconds for the first answer when a request is running. Successive text of one ticket comes as
        one delta.
        """
        for ticket in work.drops:
            if request := self._running.pop(ticket, None):
                request.abandoned.set()
        for _slot, ticket, payload in work.items:
            if isinstance(payload, Prompt):
                self._start(Request(ticket, request_body(payload)))
            else:
                cause = f"asked to continue a {type(payload).__name__}, not a Prompt"
                yield Result(ticket, Error(StepFailed("language", cause)))
        if self._running:
            yield from self._results(merged(self._waiting_answers()))

    def close(self) -> None:
        """Abandon what runs."""
        for request in self._running.values():
            request.abandoned.set()
        self._running.clear()

    # --- requests ----------------------------------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        self._running[request.ticket] = request
        # A daemon: a process that is told to end does not wait for the runtime to notice.
        threading.Thread(target=self._run, args=(request,), name=f"prompt {request.ticket}", daemon=True).start()

    def _run(self, request: Request) -> None:
        def say(text: str) -> None:
            # Asked for no tokens, the runtime writes one all the same.
            if request.body["max_tokens"]:
                self._answers.put(Answer(request, TextDelta(text)))

        reply = Reply(say, request.abandoned.is_set)
        try:
            self._server.handle_chat_completions(dict(request.body), reply.take)
        except RuntimeError as error:
            reply.failure = str(error)
        self._answers.put(Answer(request, reply.ending()))

    def _waiting_answers(self) -> Iterator[Answer]:
        try:
            yield self._answers.get(timeout=LONGEST_WAIT_S)
            while True:
                yield self._answers.get_nowait()
        except queue.Empty:
            return

    def _results(self, answers: Iterable[Answer]) -> Iterator[Result]:
        for answer in answers:
            ticket = answer.request.ticket
            if self._running.get(ticket) is not answer.request:
                continue  # abandoned meanwhile
            if answer.last:
                del self._running[ticket]
            content = answer.content
            yield Result(ticket, Error(content) if isinstance(content, StepFailed) else Value(content), answer.last)

    # --- the runtime -------------------------------------------------------------------------------------------

    def _parameters(self, runtime: Any) -> Any:
        parameters = runtime.CommonParams()
        parameters.model.path = self._model
        parameters.n_parallel = self._slots
        parameters.n_ctx = self._context_tokens * self._slots
        parameters.cache_prompt = True
        parameters.cache_ram_mib = PROMPT_CACHE_MIB
        parameters.verbosity = -1
        for pool in (parameters.cpuparams, parameters.cpuparams_batch):
            pool.n_threads = self._threads
            pool.poll = 0
        # The runtime opens an HTTP port that nobody here uses: loopback, and a key that nobody knows.
        parameters.hostnames = ["127.0.0.1"]
        parameters.api_keys = [secrets.token_urlsafe(32)]
        parameters.ui = False
        parameters.endpoint_slots = False
        return parameters

    def _warm_up(self) -> None:
        messages = self._prelude or (ChatMessage("user", "Hi"),)
        body = request_body(Prompt(messages=messages, max_tokens=1, temperature=0.0))
        warmers = [Request(-number, body) for number in range(1, self._slots + 1)]
        for request in warmers:
            self._start(request)
        while self._running:
            for result in self._results(self._waiting_answers()):
                result.outcome.unwrap()


class Reply:
    """Reads what the runtime's streaming callback is given: text, usage, the finish reason, or an error."""

    def __init__(self, say: Callable[[str], None], abandoned: Callable[[], bool]) -> None:
        self.failure: str | None = None
        self._say = say
        self._abandoned = abandoned
        self._reason: str | None = None
        self._usage: Mapping[str, Any] = {}

    def take(self, chunks: Any) -> bool:
        """The callback: one chunk or a list of them. True abandons the request; nothing may be raised here."""
        for chunk in chunks if isinstance(chunks, list) else [chunks]:
            self._take_one(chunk)
        return self._abandoned()

    def ending(self) -> Completion | StepFailed:
        """How the request ended, once the runtime has returned."""
        if self.failure is not None:
            return StepFailed("language", self.failure)
        return Completion(
            reason="cancelled" if self._abandoned() else self._reason or "length",
            prompt_tokens=self._usage.get("prompt_tokens", 0),
            cached_tokens=self._usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            completion_tokens=self._usage.get("completion_tokens", 0),
        )

    def _take_one(self, chunk: Mapping[str, Any]) -> None:
        if error := chunk.get("error"):
            self.failure = str(error.get("message", error))
        for choice in chunk.get("choices", ()):
            if text := choice.get("delta", {}).get("content"):
                self._say(text)
            self._reason = choice.get("finish_reason") or self._reason
        self._usage = chunk.get("usage") or self._usage


def useful_threads(model: Path) -> int:
    """How many threads make this model faster: one a core, but one alone for a model so small that agreeing takes longer."""
    if model.is_file() and model.stat().st_size < SMALL_MODEL_BYTES:
        return 1
    return os.cpu_count() or 1


def request_body(prompt: Prompt) -> Mapping[str, object]:
    """A prompt in the words of the runtime's chat interface."""
    body: dict[str, object] = {
        "messages": [attrs.asdict(message) for message in prompt.messages],
        "max_tokens": prompt.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,
        **SAMPLING,
    }
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    if prompt.grammar is not None:
        body["grammar"] = prompt.grammar
    if prompt.seed is not None:
        body["seed"] = prompt.seed
    return body


def merged(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Join the text of each request; its ending, if it is there, follows."""
    texts: dict[Request, str] = {}
    endings: list[Answer] = []
    for answer in answers:
        if isinstance(answer.content, TextDelta):
            texts[answer.request] = texts.get(answer.request, "") + answer.content.text
        else:
            endings.append(answer)
    for request, text in texts.items():
        yield Answer(request, TextDelta(text))
    yield from endings


def check_processor(facts: Path = Path("/proc/cpuinfo")) -> None:
    """Raise ModelMissing on an x86 processor without AVX2: the runtime's wheel would die there without a word."""
    if platform.machine() not in ("x86_64", "AMD64") or not facts.is_file():
        return
    if "avx2" not in facts.read_text(encoding="utf-8").split():
        raise ModelMissing(
            "this processor has no AVX2 instructions, which the prebuilt language model runtime needs; "
            "build xllamacpp from source for it, or choose another plugin with --plugin"
        )
