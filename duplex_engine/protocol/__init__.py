"""What the wire says: messages, codec, handshake, session objects, journal. Pure: no event loop, no numpy."""
