"""Models as plugins: the contract, the behaviours, and the plugins that ship with the engine."""
