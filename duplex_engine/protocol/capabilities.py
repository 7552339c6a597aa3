"""What a model can do, and how the wire says it (wire contract, section 10).

Owns the capability payload of 40 keys. The plugin states its facts; `to_wire` derives the rest in one place.
"""

from enum import Enum

import attrs


class TurnPolicy(Enum):
    """Who decides when the assistant speaks."""

    MODEL = "model"
    TURN = "turn"


class Interrupt(Enum):
    """What a cancel ends: the response (context survives) or the whole epoch (the model starts a fresh context)."""

    RESPONSE = "response"
    EPOCH = "epoch"


class Modality(Enum):
    """A kind of input."""

    AUDIO = "audio"
    VIDEO = "video"

    __hash__ = object.__hash__  # members are singletons; hashing their names takes longer


@attrs.frozen(kw_only=True)
class Capabilities:
    """Facts of a model that the engine acts on; everything else on the wire follows from them.

    `detects_turns`: a turn model that ends turns by itself with its own detector when `auto_response` is asked for.
    `chat`: chat completions are offered over HTTP (not on the wire); needs `text_only_turns`.
    `chunk_period_ms`: unit length, > 0. `test_only`: no model at all; said at the start.
    """

    turn_policy: TurnPolicy
    client_commit: bool = True
    barge_in: bool = True
    interrupt: Interrupt = Interrupt.RESPONSE
    resume: bool = False
    audio_truncate: bool = True
    image_input: bool = False
    text_only_turns: bool = False
    overlapping_responses: bool = False
    detects_turns: bool = False
    tools: bool = False
    chat: bool = False
    required_inputs: frozenset[Modality] = frozenset({Modality.AUDIO})
    optional_inputs: frozenset[Modality] = frozenset()
    chunk_period_ms: int = 1000
    max_sessions: int = 1
    test_only: bool = False

    @property
    def native(self) -> bool:
        """Whether the model itself decides to listen or to speak."""
        return self.turn_policy is TurnPolicy.MODEL

    def to_wire(self) -> dict[str, object]:
        """The payload of `session.capabilities`: exactly the 40 keys of section 10."""
        native, several = self.native, self.max_sessions > 1
        return {
            "supports_session_adapter": True,
            "supports_model_native_turn_policy": native,
            "supports_external_turn_signal": self.client_commit,
            "supports_client_commit": self.client_commit,
            "supports_barge_in": self.barge_in,
            "supports_playback_ack": True,
            "supports_input_append": True,
            "supports_replace_latest_chunk": False,
            "supports_reencode_context": not native,
            "supports_rollback_to_checkpoint": False,
            "supports_turn_commit_only": not native,
            "supports_kv_lease": False,
            "supports_core_kv_lease": False,
            "supports_model_internal_state": native,
            "supports_stage_resumption": native,
            "supports_scheduler_native_append": False,
            "supports_core_resumable_request": native,
            "supports_concurrent_turn_requests": self.overlapping_responses,
            "required_input_modalities": sorted(m.value for m in self.required_inputs),
            "optional_input_modalities": sorted(m.value for m in self.optional_inputs),
            "supports_stage_connector_handoff": native,
            "supports_independent_io_streams": True,
            "supports_realtime_endpoint": True,
            "supports_multi_session": several,
            "supports_multi_session_same_replica": several,
            "supports_session_lease": True,
            "supports_session_resume": self.resume,
            "session_admission_mode": "engine_managed",
            "supports_audio_truncate": self.audio_truncate,
            "supports_image_input": self.image_input,
            "supports_text_only_turn": self.text_only_turns,
            "requires_model_runner_kv": native,
            "requires_native_stage_role": native,
            "implementation_level": "model_native_duplex" if native else "turn_based_duplex",
            "adapter_patterns": ["scheduler_data_plane" if native else "turn_commit"],
            "input_modes": ["append_audio_chunk"],
            "signal_sources": (["model_native"] if native else [])
            + ["client_event"]
            + (["server_policy"] if self.barge_in else []),
            "stage_handoff_transport": "scheduler_data_plane" if native else None,
            "chunk_period_ms": self.chunk_period_ms,
            "target_barge_in_latency_ms": None,
        }
