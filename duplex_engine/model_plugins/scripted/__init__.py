"""The scripted plugin: plays a script instead of running a model. For tests and demonstrations only."""
