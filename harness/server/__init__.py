"""The OpenAI-compatible server over any engine: HTTP in one process, the engine in another."""
