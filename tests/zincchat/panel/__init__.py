"""Tests of zincchat.panel."""
