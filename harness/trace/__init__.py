"""A run as a picture: trace.json, which Perfetto and chrome://tracing open."""

from harness.trace.file import TRACE_FILE, write_trace

__all__ = ["TRACE_FILE", "write_trace"]
