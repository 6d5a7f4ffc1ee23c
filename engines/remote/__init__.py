"""Engines on the other side of a socket: how they are spoken to, started, watched and counted."""
