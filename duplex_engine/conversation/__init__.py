"""What was said and what is owed: the session's state machine and its tables. Pure: no event loop, no sockets."""
