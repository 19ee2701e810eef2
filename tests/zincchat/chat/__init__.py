"""Tests of zincchat.chat."""
