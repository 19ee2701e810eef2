"""The conversation and what is typed into it, without any terminal."""
