"""Frames, messages, keys, TLS and streams."""
