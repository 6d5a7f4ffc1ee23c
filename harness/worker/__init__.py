"""One engine in a process of its own: what it is told, and what it does then."""
