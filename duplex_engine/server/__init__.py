"""The server: HTTP and WebSocket in front of an engine. Start it with `python -m duplex_engine.server`."""
