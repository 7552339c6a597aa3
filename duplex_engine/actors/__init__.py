"""The actors: every session, epoch, response, attachment and worker is a scope in a nursery tree.

The only package with nurseries beside server and client. `docs/design/architecture.md` draws the tree.
"""
