"""How much of what clients and models say may stand in one event, so that none of our frames is too big for any client.

Owns the limits. Clients of the usual WebSocket libraries drop a connection over one frame of a megabyte; ours stay below
`FRAME_BYTES`. Media are not said back at all, and answers are cut into deltas, so that what is left is words: the
client's names, items and settings, and the model's at the end of an answer, where all of them stand together.
"""

from typing import Final

FRAME_BYTES: Final = 256 * 1024
"""No frame of ours is as big as this."""
ECHO_BYTES: Final = 224 * 1024
"""A whole session object, or a whole item, as JSON."""
METADATA_BYTES: Final = 16 * 1024
"""Metadata of a session or of a response, as JSON: they travel beside an answer's words."""
TRANSCRIPT_CHARACTERS: Final = 32_000
"""What a client says was said in one turn."""
NAME_CHARACTERS: Final = 512
"""Ids, and whatever else only names something."""
MESSAGE_CHARACTERS: Final = 1_000
"""The words of an error, or of a goodbye."""
ANSWER_BYTES: Final = 128 * 1024
"""Words of an answer and its calls of functions, as JSON: hours of speech. Marks and metadata stand beside them."""
CALL_BYTES: Final = 256
"""What a call of a function takes beside its own words."""
ALIGNMENT_MARKS: Final = 1_000
"""Marks between words and sound that an item shows of a long answer."""
