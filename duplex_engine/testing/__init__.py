"""The public test kit, for embedders and plugin authors: a rig, callers, timelines, invariants, schedule exploration.

`rig` opens an engine on a plugin, `caller` is somebody who talks to it, `timeline` is what was heard and when,
`invariants` holds after every story, `schedules` runs a story under many schedules, `marks` reads the sound of the
scripted plugin. Everything runs on Trio's clock, so that a mock clock moves all of it.
"""
