"""The terminal app and command line of zincchat; reaches the engine through its public names only."""
