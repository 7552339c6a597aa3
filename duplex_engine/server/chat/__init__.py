"""Chat completions over HTTP, for plugins that offer them (wire contract 1.4): each request is a short session.

`request.py` and `messages.py` read a request, `talk.py` holds the session, `answer.py` reads its events, `whole.py` and
`chunks.py` write what OpenAI's clients read, `service.py` is the HTTP around it. Never runs a model of its own.
"""
