"""What becomes of each append: kept, fed to the model, ignored, or a reason to interrupt (wire contract 3.3, 6.5).

Owns the three ways of listening: a native model hears everything, a server-detected turn follows the detector's edges,
push-to-talk takes the client's word. Never ends a turn by itself: `committing.py` does.
"""

from collections.abc import Callable
from functools import partial

import attrs

from duplex_engine.audio.pcm import SILENCE, Samples
from duplex_engine.conversation.answers import Answers
from duplex_engine.conversation.committing import Committing
from duplex_engine.conversation.effects import Feed, Heard, RedoHearing, SpeechChange
from duplex_engine.conversation.overlap import BARGE_IN_ACTIONS, Action, Decision, Overlap, decide
from duplex_engine.conversation.pending import SAMPLE_BYTES
from duplex_engine.conversation.projection.input import Listens
from duplex_engine.conversation.scene import Scene
from duplex_engine.conversation.speech import PREFIX_MS, Speech
from duplex_engine.errors import CodedError, ProtocolViolation
from duplex_engine.protocol.capabilities import Modality
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.events import OverlapDecided


class Listening:
    """The appends of one conversation."""

    def __init__(
        self, scene: Scene, speech: Speech, answers: Answers, committing: Committing, listens: Listens
    ) -> None:
        self._scene = scene
        self._accepted = scene.capabilities.required_inputs | scene.capabilities.optional_inputs
        self._speech = speech
        self._answers = answers
        self._committing = committing
        self._listens = listens

    def append(self, command: AppendAudio, heard: Heard) -> None:
        """One append. Raises ProtocolViolation `invalid_input_modality` or `input_backpressure`."""
        self._check(command, heard)
        if heard.detector_failed is not None:
            self._lose_detector(command, heard.detector_failed)
        self._speech.turn.hint(command.transcript)
        if self._scene.config.native:
            self._feed(command, heard)
        elif heard.detected and self._scene.config.turn_detection is not None:
            self._follow(command, heard)
        else:
            self._take(command, heard)

    def _lose_detector(self, command: AppendAudio, cause: str) -> None:
        """From now on nobody but the client, or the model, says when a turn is over."""
        scene = self._scene
        scene.config = attrs.evolve(scene.config, turn_detection=None, overlap_policy="listen_only")
        self._speech.pause(paused=False)
        scene.do(RedoHearing(scene.config))
        message = f"turn detection is off from now on: {cause}; commit turns, or set turn_detection again"
        scene.complain(CodedError("server_vad_unavailable", message), command.event_id)

    def take_rest(self, heard: Heard) -> None:
        """The last sound of a turn that the client is about to commit."""
        turn = self._speech.turn
        if heard.speech:
            turn.speech_ms += heard.duration_ms
            if not turn.speaking:
                turn.overlaps = self._answering(estimated=False)
                self._speech.start(self._speech.now_ms)
            turn.speech = True
        self._speech.pass_time(heard.samples)
        if self._scene.config.native:
            self._scene.do(Feed(heard.samples))
        elif turn.samples or turn.speech:
            self._speech.keep(heard.samples)

    def _check(self, command: AppendAudio, heard: Heard) -> None:
        required = self._scene.capabilities.required_inputs
        for modality, there, param in (
            (Modality.VIDEO, bool(command.video_frames), "video_frames"),
            (Modality.AUDIO, bool(command.audio), "audio"),
        ):
            if there and modality not in self._accepted:
                raise ProtocolViolation("invalid_input_modality", f"this model takes no {modality.value}", param)
            if not there and modality in required:
                raise ProtocolViolation(
                    "invalid_input_modality", f"this model needs {modality.value} with every append", param
                )
        if self._scene.config.native:
            return
        if command.video_frames:
            raise ProtocolViolation(
                "invalid_input_modality", "pictures need a session in which the model decides", "video_frames"
            )
        waiting, limit = self._committing.pending_bytes, self._scene.limits.input_bytes
        if waiting + SAMPLE_BYTES * len(heard.samples) > limit:
            raise ProtocolViolation(
                "input_backpressure", f"{waiting} bytes of sound wait for an answer; the limit is {limit}", "audio"
            )

    # --- a model that decides by itself -----------------------------------------------------------------------

    def _feed(self, command: AppendAudio, heard: Heard) -> None:
        turn = self._speech.turn
        turn.buffered = True
        turn.speech_ms += heard.duration_ms if heard.speech else 0.0
        if not heard.detected and heard.speech and not turn.speaking:
            self._speech.start(self._hinted_start(command))
        for change in heard.changes:
            if change.kind == "started" and not turn.speaking:
                self._speech.start(change.at_ms)
        turn.speech = turn.speech or heard.speech
        self._speech.pass_time(heard.samples)
        force_listen = command.force_listen or (heard.detected and heard.speech)
        self._scene.do(Feed(heard.samples, force_listen, heard.video_frames))
        self._overlap_native(command, heard)
        if heard.changes and heard.changes[-1].kind == "stopped":
            self._answers.then(partial(self._speech.stop, heard.changes[-1].at_ms))

    def _overlap_native(self, command: AppendAudio, heard: Heard) -> None:
        asks, policy = _asks(command), self._policy_barge_in()
        if asks and not self._scene.capabilities.barge_in:
            self._refuse_barge_in(command)
        elif (asks or policy) and self._answering(estimated=heard.detected or asks):
            started = any(change.kind == "started" for change in heard.changes)
            decision = self._decide(command, heard, speech=heard.speech, just_started=started)
            self._act(decision)

    # --- turns that the server's detector ends ----------------------------------------------------------------

    def _follow(self, command: AppendAudio, heard: Heard) -> None:
        """Each edge in its place; what comes after an interruption waits until that is through."""
        self._speech.turn.buffered = True
        steps: list[Callable[[], None]] = []
        place = 0
        for change in heard.changes:
            steps.append(partial(self._stretch, heard.samples[place : change.samples_before]))
            steps.append(partial(self._edge, change, command, heard))
            place = change.samples_before
        steps.append(partial(self._stretch, heard.samples[place:]))
        steps.append(partial(self._settle, command, heard))
        for step in steps:
            self._answers.then(step)

    def _stretch(self, samples: Samples) -> None:
        """Sound between two edges."""
        self._speech.pass_time(samples)
        if self._speech.turn.speaking:
            self._speech.keep(samples)
        else:
            self._speech.remember(samples)

    def _edge(self, change: SpeechChange, command: AppendAudio, heard: Heard) -> None:
        turn, detection = self._speech.turn, self._scene.config.turn_detection
        if change.kind in ("paused", "resumed"):
            self._speech.pause(paused=change.kind == "paused")
        elif change.kind == "started" and not turn.speaking and detection is not None:
            turn.overlaps = self._answering(estimated=True)
            self._speech.start(change.at_ms)
            turn.buffered = turn.speech = True
            padding = max(detection.prefix_padding_ms, PREFIX_MS)
            self._speech.keep(SILENCE, before_ms=change.voiced_ms + padding)
        elif change.kind == "stopped" and turn.speaking:
            self._stopped(change, command, heard)

    def _stopped(self, change: SpeechChange, command: AppendAudio, heard: Heard) -> None:
        turn = self._speech.turn
        turn.speech_ms = change.voiced_ms
        kept = True
        if self._answering(estimated=True):
            decision = self._decide(command, heard, speech=True, ended=True)
            kept = decision.keep
            self._act(decision)
        self._answers.then(partial(self._end_turn, change.at_ms, kept))

    def _end_turn(self, at_ms: float, kept: bool) -> None:
        detection = self._scene.config.turn_detection
        self._speech.stop(at_ms)
        self._committing.commit_detected(asked=detection is None or detection.create_response, kept=kept)

    def _settle(self, command: AppendAudio, heard: Heard) -> None:
        """The end of the append: speech that goes on over an answer may interrupt it."""
        turn = self._speech.turn
        if turn.speaking:
            turn.speech_ms = heard.voiced_ms
        ended = any(change.kind == "stopped" for change in heard.changes)
        if turn.speaking or not ended:
            if self._answering(estimated=True):
                self._act(self._decide(command, heard, speech=turn.speaking))
            elif not turn.speaking:
                self._listens.say("silence_or_noise")
        self._committing.rest_detector()

    # --- push-to-talk -----------------------------------------------------------------------------------------

    def _take(self, command: AppendAudio, heard: Heard) -> None:
        turn = self._speech.turn
        turn.buffered = True
        if heard.speech:
            turn.speech_ms += heard.duration_ms
            if not turn.speaking:
                turn.overlaps = self._answering(estimated=False)
                self._speech.start(self._hinted_start(command))
        self._speech.pass_time(heard.samples)
        keep = heard.speech or turn.samples > 0
        if self._answering(estimated=_asks(command)):
            decision = self._decide(command, heard, speech=heard.speech)
            keep = decision.keep
            self._act(decision)
        elif not keep:
            self._listens.say("silence_or_noise")
        if keep:
            self._speech.keep(heard.samples)
            turn.speech = turn.speech or heard.speech
        else:
            self._speech.remember(heard.samples)
            if not turn.samples:
                self._speech.stop(command.audio_end_ms)

    def _hinted_start(self, command: AppendAudio) -> float:
        return self._speech.now_ms if command.audio_start_ms is None else command.audio_start_ms

    # --- a player that was stopped ----------------------------------------------------------------------------

    def stopped_playing(self, item_id: str) -> None:
        """The client says how far it has played this answer. Over speech that may interrupt, that settles the matter.

        Players of `ga` stop on `speech_started`: what they are sent after it would be heard as a voice from the past.
        """
        answer, turn = self._answers.by_item(item_id), self._speech.turn
        if self._scene.strict or answer is None or answer.status is not None or not self._policy_barge_in():
            return
        if turn.speaking and turn.overlaps and self._scene.capabilities.barge_in:
            turn.overlaps = False
            self._answers.interrupt("turn_detected")

    # --- overlap ----------------------------------------------------------------------------------------------

    def _answering(self, *, estimated: bool) -> bool:
        """Whether a response is in progress (7.2). `estimated`: one that is probably still playing counts as well."""
        answers = self._answers
        return bool(answers.alive) or (bool(answers.fading) if estimated else answers.unacknowledged)

    def _policy_barge_in(self) -> bool:
        config = self._scene.config
        detection = config.turn_detection
        interrupts = detection is None or detection.interrupt_response
        return config.overlap_policy == "barge_in_on_speech" and interrupts and not self._scene.learning

    def _decide(
        self, command: AppendAudio, heard: Heard, *, speech: bool, just_started: bool = False, ended: bool = False
    ) -> Decision:
        """The table's decision, said to the client."""
        scene, turn = self._scene, self._speech.turn
        detected = heard.detected and scene.config.turn_detection is not None
        asking = not scene.learning  # the rest of an append that has interrupted cannot interrupt again
        overlap = Overlap(
            native=scene.config.native,
            speech=speech,
            barge_in=scene.capabilities.barge_in,
            policy_barge_in=self._policy_barge_in(),
            action=command.overlap_action if asking else None,
            force_barge_in=command.force_barge_in and asking,
            force_listen=command.force_listen,
            pictures=bool(command.video_frames) and not command.audio,
            transcript=turn.transcript,
            detected=detected,
            just_started=just_started,
            underway=not turn.overlaps,
            ended=ended,
            speech_ms=turn.speech_ms,
            short_ack_ms=scene.config.overlap_short_ack_ms,
        )
        decision = decide(overlap)
        self._say_decision(decision, heard.duration_ms, overlap)
        if overlap.asks and not overlap.barge_in:
            self._refuse_barge_in(command)
        return decision

    def _say_decision(self, decision: Decision, duration_ms: float, overlap: Overlap) -> None:
        scene = self._scene
        policy, action, reason = scene.config.overlap_policy, decision.action.value, decision.reason
        metadata: dict[str, object] = {
            "type": "overlap.decision",
            "session_id": scene.session_id,
            "epoch": scene.epoch,
            "policy": policy,
            "action": action,
            "reason": reason,
            "duration_ms": round(duration_ms),
            "overlap_speech_ms": round(overlap.speech_ms),
            "buffer_audio": decision.keep,
        }
        if decision.cancel_reason is not None:
            metadata["cancel_reason"] = decision.cancel_reason
        scene.say(
            OverlapDecided(
                session_id=scene.session_id,
                epoch=scene.epoch,
                policy=policy,
                action=action,
                reason=reason,
                metadata=metadata,
            )
        )

    def _act(self, decision: Decision) -> None:
        if decision.action is Action.BARGE_IN and decision.cancel_reason is not None:
            self._speech.turn.overlaps = False
            self._answers.interrupt(decision.cancel_reason)

    def _refuse_barge_in(self, command: AppendAudio) -> None:
        error = CodedError("barge_in_unsupported", "this model cannot be interrupted by input; use response.cancel")
        self._scene.complain(error, command.event_id)


def _asks(command: AppendAudio) -> bool:
    return command.force_barge_in or command.overlap_action in BARGE_IN_ACTIONS
